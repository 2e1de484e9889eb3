{
  description = "Assay: the pinned shell, and what it is checked with";

  # The revision stands here, in flake.lock and, as a second record, in tests/nix/nixpkgs.toml; a lint holds
  # all three against each other.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/d482ef84049d9b7276b83a06e4e4d76983830097";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;

      eachSystem = lib.genAttrs [
        "x86_64-linux"
        "aarch64-linux"
      ];
      free = eachSystem (system: nixpkgs.legacyPackages.${system});

      # CUDA's licence is not free: it is allowed for CUDA's own packages, and in this one shell.
      withCuda =
        system:
        import nixpkgs {
          inherit system;
          config.allowUnfreePredicate =
            package: builtins.match "(cuda|libcu|libnv).*" (lib.getName package) != null;
        };

      # The one place that says which uv: `eval/assay/setup/tool.py` reads the same file.
      tools = ./eval/assay/setup/tools.in;
      asked = builtins.match "uv==([0-9.]+)\n" (builtins.readFile tools);
      pinnedUv =
        pkgs:
        let
          given = lib.getVersion pkgs.uv;
        in
        if asked != null && builtins.head asked == given then
          pkgs.uv
        else
          throw "nixpkgs has uv ${given}, but ${baseNameOf tools} asks for ${builtins.readFile tools}";

      # Bare interpreters: every package comes from the hash-pinned locks. The first one is `python3`.
      programs = pkgs: [
        pkgs.python312
        pkgs.python313
        (pinnedUv pkgs)
        pkgs.jq
        pkgs.git
        pkgs.docker-client
        pkgs.shellcheck
      ];

      # What the shell says of itself. `assay doctor` and every run hold it against flake.lock, and against
      # where the programs really lie.
      variables = pkgs: name: libraries: {
        ASSAY_NIX_SHELL = name;
        ASSAY_NIXPKGS_REV = nixpkgs.rev or "";
        ASSAY_NIXPKGS_NAR_HASH = nixpkgs.narHash or "";
        ASSAY_FLAKE_LOCK_SHA256 = builtins.hashFile "sha256" ./flake.lock;
        # Every evaluator accepts 3.12, and prime-envs nothing else.
        ASSAY_PYTHON = "${pkgs.python312}/bin/python3.12";
        ASSAY_PYTHON_DEV = "${pkgs.python313}/bin/python3.13";
        # Ready-built packages look for these. Only the environments' Pythons are started with them:
        # LD_LIBRARY_PATH for the whole shell would reach the host's own programs too.
        ASSAY_LIBRARY_PATH = libraries;
        UV_PYTHON_DOWNLOADS = "never";
        UV_PYTHON_PREFERENCE = "only-system";
      };
      libraryPath =
        pkgs:
        lib.makeLibraryPath [
          pkgs.stdenv.cc.cc
          pkgs.zlib
        ];

      # The hooks of two interpreters would mix their paths, and stdenv's date is no build of ours.
      shellHook = ''
        unset PYTHONPATH PYTHONHOME SOURCE_DATE_EPOCH _PYTHON_SYSCONFIGDATA_NAME _PYTHON_HOST_PLATFORM
        if [[ $- == *i* ]]; then
          echo "assay: the pinned shell ($ASSAY_NIX_SHELL); what it has and lacks: eval/scripts/doctor" >&2
        fi
      '';

      defaultShell =
        pkgs:
        pkgs.mkShell (
          variables pkgs "default" (libraryPath pkgs)
          // {
            name = "assay";
            packages = programs pkgs ++ [ pkgs.stdenv.cc ];
            inherit shellHook;
          }
        );

      # The compiler here is one that nvcc accepts. The driver's library comes with the machine, and on NixOS
      # it lies under that link.
      cudaShell =
        pkgs:
        let
          inherit (pkgs) cudaPackages;
          stdenv = cudaPackages.backendStdenv;
        in
        pkgs.mkShell.override { inherit stdenv; } (
          variables pkgs "cuda" "${libraryPath pkgs}:/run/opengl-driver/lib"
          // {
            name = "assay-cuda";
            packages = programs pkgs ++ [
              stdenv.cc
              cudaPackages.cuda_nvcc
            ];
            buildInputs = [
              cudaPackages.cuda_cudart
              (lib.getOutput "static" cudaPackages.cuda_cudart)
              cudaPackages.cuda_cccl
            ];
            inherit shellHook;
          }
        );

      # `nix run .#doctor`, inside a checkout: it tells about that checkout, so its own code is what runs.
      doctor =
        pkgs:
        pkgs.writeShellApplication {
          name = "assay-doctor";
          runtimeInputs = programs pkgs ++ [ pkgs.stdenv.cc ];
          text = ''
            ${lib.concatStringsSep "\n" (
              lib.mapAttrsToList (name: value: "export ${name}=${lib.escapeShellArg value}") (
                variables pkgs "default" (libraryPath pkgs)
              )
            )}
            export NIX_STORE=${builtins.storeDir}
            unset PYTHONPATH PYTHONHOME
            root=$(git rev-parse --show-toplevel 2>/dev/null || true)
            if [[ ! -f "$root/eval/scripts/doctor" ]]; then
              echo "assay: error: $PWD is in no checkout of Assay" >&2
              echo "  next: cd to the checkout, then: nix run .#doctor" >&2
              exit 3
            fi
            exec "$root/eval/scripts/doctor" "$@"
          '';
        };
    in
    {
      devShells = eachSystem (
        system:
        {
          default = defaultShell free.${system};
        }
        // lib.optionalAttrs (system == "x86_64-linux") { cuda = cudaShell (withCuda system); }
      );

      apps = eachSystem (system: {
        doctor = {
          type = "app";
          program = lib.getExe (doctor free.${system});
          meta.description = "What this machine and this checkout have and lack";
        };
      });

      checks = eachSystem (
        system:
        let
          pkgs = free.${system};
          check =
            name: inputs: script:
            pkgs.runCommand "assay-${name}" { nativeBuildInputs = inputs; } ''
              ${script}
              touch "$out"
            '';
        in
        {
          shell = self.devShells.${system}.default;
          doctor = doctor pkgs;
          scripts = check "scripts" [ pkgs.shellcheck ] ''
            cd ${self}
            shellcheck --external-sources eval/scripts/* .ci/run server/gpu-check
          '';
          versions = check "versions" (programs pkgs) ''
            [ "uv==$(uv --version | cut -d ' ' -f 2)" = "$(cat ${tools})" ]
            python3.12 -I -c 'import ssl, sqlite3, lzma, ctypes, sys; assert sys.version_info[:2] == (3, 12)'
            python3.13 -I -c 'import ssl, sqlite3, lzma, ctypes, sys; assert sys.version_info[:2] == (3, 13)'
          '';
        }
      );

      formatter = eachSystem (system: free.${system}.nixfmt);
    };
}
