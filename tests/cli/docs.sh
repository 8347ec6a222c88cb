#!/bin/sh
# The pages say what is true: their console blocks run and print what they show, every rule that the code names and
# every exit code has its page, and links inside the tree lead somewhere. UPDATE=1 rewrites shown output.
set -eu
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
REPOSITORY=$(cd "$here/../.." && pwd)
export REPOSITORY MOTET
cd "$REPOSITORY"
pages=$(find docs bindings -name '*.md' | sort)
[ -e README.md ] && pages="README.md $pages"
# Without the runtime there are no jobs to plan.
motet help --names | grep -q '^train$' || pages=$(echo "$pages" | tr ' ' '\n' | grep -v -e '^README.md$' -e '^docs/tutorial.md$' -e '^docs/errors/feature_cache.md$')

# The runner itself: a wrong line is seen, an elision is not.
printf '%s\n' '```console' '$ printf "one\ntwo\n"' 'one' 'three' '```' >"$out.md"
if python3 "$here/console.py" "$out.md" >"$out" 2>&1; then fail 'a page that shows something else passes'; fi
printf '%s\n' '```console' '$ printf "one\ntwo\nthree\n"' 'o...' '...' 'three' '```' >"$out.md"
python3 "$here/console.py" "$out.md" >"$out" 2>&1 || fail "elisions are not matched: $(cat "$out")"

# shellcheck disable=SC2086
python3 "$here/console.py" ${UPDATE:+--update} $pages >"$out" 2>&1 || fail "$(cat "$out")"
python3 - $pages <<'CHECK' || exit 1
import pathlib, re, sys
rules = set()
for path in pathlib.Path("src").rglob("*.c"):
    text = path.read_text()
    rules.update(re.findall(r'mt_build_refuse\(\s*build,\s*"([a-z_]+)"', text))
    rules.update(re.findall(r'mt_error_rule\([^;"]*,\s*"([a-z_]+)"', text))
    for table in re.findall(r"rule_names\[MT_RULES\] = \{([^}]*)\}", text):
        rules.update(re.findall(r'"([a-z_]+)"', table))
assert len(rules) >= 15, rules
codes = re.search(r"MT_EXIT_DONE = 0,([^}]*)", pathlib.Path("src/cli/cli.h").read_text())[1]
named = rules | {"exit-" + code for code in re.findall(r"= (\d+)", codes)}
assert len(named) - len(rules) >= 4, named
described = {page.stem: page.read_text() for page in pathlib.Path("docs/errors").glob("*.md")}
listed = set(re.findall(r"\]\(errors/([^)]+)\.md\)", pathlib.Path("docs/errors.md").read_text()))
failed = False
for name in sorted(named ^ set(described)):
    print("FAIL:", name, "has no page in docs/errors/" if name in named else "has a page and is named by no code")
    failed = True
for name in sorted(set(described) - listed):
    print("FAIL: docs/errors.md does not list", name)
    failed = True
# No command breaks these at will: a budget of rank sets is short behind earlier batches, motet's own orders are whole, signals take time.
silent = {"group_budget", "order", "exit-130"}
for name, text in sorted(described.items()):
    shown = "".join(re.findall(r"```console\n(.*?)```", text, re.S))
    if name not in silent and (f"[{name}]" not in shown if name in rules else f"exit code {name[5:]}" not in shown):
        print(f"FAIL: docs/errors/{name}.md does not show it happen")
        failed = True
    if "\n## What to do\n" not in text:
        print(f"FAIL: docs/errors/{name}.md does not say what to do")
        failed = True
for status in re.findall(r"^  (MOTET_ERROR_[A-Z]+) =", pathlib.Path("include/motet/status.h").read_text(), re.M):
    if not any(status in text for name, text in described.items() if name not in rules):
        print("FAIL:", status, "is on no page of an exit code")
        failed = True
for page in sys.argv[1:]:
    text = re.sub(r"```.*?```", "", pathlib.Path(page).read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not (pathlib.Path(page).parent / target).exists():
            print(f"FAIL: {page}: the link {target} leads nowhere")
            failed = True
sys.exit(failed)
CHECK
