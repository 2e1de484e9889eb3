# The packages. A program is a link to the machine's own, which `host.json` names; whoever uses the stand-in
# writes that file: {"path": a PATH for builders, "programs": {name: absolute path, or null where there is
# none}, "uv": the version to claim}.
{
  system ? builtins.currentSystem,
  config ? { },
  overlays ? [ ],
}:
let
  lib = import ./lib.nix;
  host = builtins.fromJSON (builtins.readFile ./host.json);

  # Nix 2.8 takes the end of a builder's stderr for the builder's end. Bash would become its last command,
  # and coreutils close stderr early; the final `exit` keeps bash waiting for it.
  build =
    name: attributes: script:
    derivation (
      attributes
      // {
        inherit name system;
        builder = "/bin/bash";
        args = [
          "-euc"
          ''
            export PATH=${host.path}
            for input in ''${nativeBuildInputs-}; do
              PATH=$input/bin:$PATH
            done
            ${script}
            exit 0
          ''
        ];
      }
    );

  # What the machine lacks is there too, and says so, as a shell would: exit 127.
  package =
    pname: version: programs:
    let
      put =
        program:
        let
          found = host.programs.${program} or null;
        in
        if found != null then
          "ln -s ${lib.escapeShellArg found} \"$out/bin/${program}\""
        else
          ''
            printf '#!/bin/sh\necho "${program}: this machine has none" >&2\nexit 127\n' > "$out/bin/${program}"
            chmod +x "$out/bin/${program}"
          '';
    in
    build "${pname}-${version}" { } ''
      mkdir -p "$out/bin" "$out/lib"
      ${lib.concatStringsSep "\n" (map put programs)}
    ''
    // {
      inherit pname version;
      meta.mainProgram = if programs == [ ] then pname else builtins.head programs;
    };

  # The file that `nix develop` sources: inputs on PATH, the first one first.
  environment =
    compiler:
    build "stdenv" { } ''
      mkdir "$out"
      cat > "$out/setup" <<'END'
      path=
      for input in ''${nativeBuildInputs-} ''${buildInputs-}; do
        if [ -d "$input/bin" ]; then path=$path$input/bin:; fi
      done
      export PATH=$path${host.path}
      export SOURCE_DATE_EPOCH=315532800
      END
    ''
    // {
      cc = compiler;
    };
  stdenv = environment (gcc "gcc-wrapper");

  gcc =
    pname:
    package pname "stand-in" [
      "g++"
      "gcc"
      "c++"
      "cc"
    ]
    // {
      cc = package "gcc" "stand-in" [ ];
    };

  shellWith =
    stdenv:
    {
      __functor =
        _:
        {
          name,
          packages ? [ ],
          nativeBuildInputs ? [ ],
          ...
        }@given:
        derivation (
          removeAttrs given [ "packages" ]
          // {
            inherit name system stdenv;
            nativeBuildInputs = nativeBuildInputs ++ packages;
            # `nix develop` writes the environment to each of them.
            outputs = [ "out" ];
            builder = "/bin/bash";
            args = [
              "-c"
              "export > \"$out\"; exit 0"
            ];
          }
        );
      override = other: shellWith (other.stdenv or stdenv);
    };

  allowed =
    package:
    if (config.allowUnfreePredicate or (_: false)) package then
      package
    else
      throw "${lib.getName package} has an unfree licence, which nothing allows";
in
{
  inherit lib stdenv system;

  mkShell = shellWith stdenv;

  runCommand = build;

  writeShellApplication =
    {
      name,
      text,
      runtimeInputs ? [ ],
    }:
    build name
      {
        inherit text;
        passAsFile = [ "text" ];
      }
      ''
        mkdir -p "$out/bin"
        {
          printf '#!/bin/bash\nset -o errexit\nset -o nounset\nset -o pipefail\n'
          printf 'export PATH="%s:$PATH"\n' '${lib.makeBinPath runtimeInputs}'
          cat "$textPath"
        } > "$out/bin/${name}"
        chmod +x "$out/bin/${name}"
        # Where the machine has one; nixpkgs does the same.
        ${if host.programs.shellcheck or null == null then "bash -n" else host.programs.shellcheck} "$out/bin/${name}"
      ''
    // {
      meta.mainProgram = name;
    };

  # `nix develop` starts this one.
  bashInteractive = package "bash-interactive" "stand-in" [ "bash" ];

  python312 = package "python3" "3.12" [
    "python3.12"
  ];
  python313 = package "python3" "3.13" [
    "python3.13"
  ];
  uv = package "uv" host.uv [ "uv" ];
  jq = package "jq" "stand-in" [ "jq" ];
  git = package "git" "stand-in" [ "git" ];
  docker-client = package "docker" "stand-in" [ "docker" ];
  shellcheck = package "shellcheck" "stand-in" [ "shellcheck" ];
  zlib = package "zlib" "stand-in" [ ];
  nixfmt = package "nixfmt" "stand-in" [ "nixfmt" ];

  cudaPackages = {
    backendStdenv = environment (gcc "gcc-wrapper-for-cuda");
    cuda_nvcc = allowed (package "cuda_nvcc" "stand-in" [ "nvcc" ]);
    cuda_cudart = allowed (package "cuda_cudart" "stand-in" [ ]);
    cuda_cccl = allowed (package "cuda_cccl" "stand-in" [ ]);
  };
}
