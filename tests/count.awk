# Counts what test runs printed: each skip by its text, then one line of totals. `tests/run.sh` feeds it.
#
# The rule. A test that cannot run here prints a line that begins with `[SKIP] `, and is then not one that passed. One
# that did run and leaves out a part prints `[SKIP] part: `, and stays one that passed; its line is listed. Tests run
# with `--show-output`, where libtest prints what each test said in a block of its own: so a line begins where the test
# began it, several lines of one test are one skip, and what the blocks of failures quote is not counted. Programs that
# are no libtest print the same lines; they are skips, and no tests.
function skip(name) {
  if (index($0, "[SKIP] part: ") == 1) parts++
  else if (name == "") skipped++
  else if (!seen[name]++) { skipped++; missing++ }
  lines = lines substr($0, 8) (name == "" ? "" : "  (" name ")") "\n"
}
/^(successes|failures):$/ { section = $1; test = ""; next }
/^test result: / {
  section = test = ""
  split("", seen)
  for (i = 2; i < NF; i++) {
    if ($(i + 1) == "passed;") passed += $i
    if ($(i + 1) == "failed;") failed += $i
  }
  next
}
section != "" && /^---- .* stdout ----$/ { test = substr($0, 6, length($0) - 17); next }
/^\[SKIP\] / && section == "successes:" { skip(test) }
/^\[SKIP\] / && section == "" { skip("") }
END {
  if (lines != "") printf "\nSkipped:\n%s", lines
  printf "\n%d passed, %d failed, %d skipped, %d skipped in part\n", passed - missing, failed, skipped, parts
}
