#!/bin/sh
# Man pages and shell completion from the command's own table. Usage: tools/make_manual.sh MOTET DIRECTORY
# Writes man1/*.1, bash/motet, zsh/_motet and fish/motet.fish under DIRECTORY.
set -eu
motet=$1 directory=$2
mkdir -p "$directory/man1" "$directory/bash" "$directory/zsh" "$directory/fish"
"$motet" help --man >"$directory/man1/motet.1"
"$motet" help --names | while read -r name; do
  "$motet" help --man "$name" >"$directory/man1/motet-$name.1"
done
"$motet" help --completion bash >"$directory/bash/motet"
"$motet" help --completion zsh >"$directory/zsh/_motet"
"$motet" help --completion fish >"$directory/fish/motet.fish"
