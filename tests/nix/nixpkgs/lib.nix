# The functions of nixpkgs' library that flake.nix calls, with the meaning they have there.
rec {
  inherit (builtins) concatStringsSep;

  genAttrs =
    names: value:
    builtins.listToAttrs (
      map (name: {
        inherit name;
        value = value name;
      }) names
    );
  mapAttrsToList = each: set: map (name: each name set.${name}) (builtins.attrNames set);
  optionalAttrs = wanted: set: if wanted then set else { };

  escapeShellArg =
    text: "'" + builtins.replaceStrings [ "'" ] [ "'\\''" ] (toString text) + "'";

  getName = package: package.pname or (builtins.parseDrvName package.name).name;
  getVersion = package: package.version or (builtins.parseDrvName package.name).version;
  getOutput = output: package: package.${output} or package;
  getExe = package: "${package}/bin/${package.meta.mainProgram or (getName package)}";

  makeLibraryPath =
    packages: concatStringsSep ":" (map (package: "${getOutput "lib" package}/lib") packages);
  makeBinPath = packages: concatStringsSep ":" (map (package: "${package}/bin") packages);
}
