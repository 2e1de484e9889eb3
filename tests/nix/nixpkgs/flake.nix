{
  description = "A stand-in for nixpkgs: what Assay's flake uses of it, made of this machine's own programs";

  # It has no inputs, so nothing is fetched, and no revision, so nothing made with it counts as pinned.
  outputs = _: rec {
    lib = import ./lib.nix;
    legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
      system: import ./default.nix { inherit system; }
    );
  };
}
