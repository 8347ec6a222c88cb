#!/bin/sh
# The pages say what is true: their console blocks run and print what they show, every rule that the code names has its
# section, and links inside the tree lead somewhere. UPDATE=1 rewrites shown output.
set -eu
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
REPOSITORY=$(cd "$here/../.." && pwd)
export REPOSITORY MOTET
cd "$REPOSITORY"
pages=$(find docs bindings -name '*.md' | sort)
[ -e README.md ] && pages="README.md $pages"
# Without the runtime there are no jobs to plan.
motet help --names | grep -q '^train$' || pages=$(echo "$pages" | tr ' ' '\n' | grep -v -e '^README.md$' -e '^docs/tutorial.md$')

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
described = set(re.findall(r"^### ([a-z_]+)$", pathlib.Path("docs/errors.md").read_text(), re.M))
failed = False
for rule in sorted(rules ^ described):
    print("FAIL: rule", rule, "has no section in docs/errors.md" if rule in rules else "is named by no code")
    failed = True
for page in sys.argv[1:]:
    text = re.sub(r"```.*?```", "", pathlib.Path(page).read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not (pathlib.Path(page).parent / target).exists():
            print(f"FAIL: {page}: the link {target} leads nowhere")
            failed = True
sys.exit(failed)
CHECK
