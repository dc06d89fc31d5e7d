#!/bin/sh
# Fetches the libraries of the dashboard's pages into crates/weir/web/vendor, at fixed versions, and checks them.
#
# Needed only to change a version: the files are kept in the repository, and a build fetches nothing.
set -eu

cd "$(dirname "$0")/../crates/weir/web/vendor"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# package version SHA-256 of the package
fetch() {
    (cd "$scratch" && npm pack --silent "$1@$2" > /dev/null)
    echo "$3  $scratch/$1-$2.tgz" | sha256sum --check --quiet
    mkdir "$scratch/$1"
    tar -xzf "$scratch/$1-$2.tgz" -C "$scratch/$1" --strip-components 1
}

fetch htm 3.1.1 2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90
fetch preact 11.2.0 3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf
fetch uplot 1.6.32 4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d

cp "$scratch/preact/dist/preact.mjs" preact.js
# Browsers know addresses, not names of packages.
sed -e 's|from"preact"|from"./preact.js"|' -e '/^\/\/# sourceMappingURL/d' "$scratch/preact/hooks/dist/hooks.mjs" > preact-hooks.js
sed -i '/^\/\/# sourceMappingURL/d' preact.js
cp "$scratch/preact/LICENSE" preact.LICENSE
cp "$scratch/htm/dist/htm.module.js" htm.js
cp "$scratch/htm/LICENSE" htm.LICENSE
cp "$scratch/uplot/dist/uPlot.iife.min.js" uplot.js
cp "$scratch/uplot/dist/uPlot.min.css" uplot.css
cp "$scratch/uplot/LICENSE" uplot.LICENSE
sha256sum preact.js preact-hooks.js htm.js uplot.js uplot.css > SHA256SUMS
