package clients

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/wait"
)

// TestTranscripts runs every transcript of testdata. A transcript is a text archive: lines,
// then the files that its commands use, between lines "-- name --".
//
//	# Proves: CRE-001 UPD-002   requirements that the next command shows; other lines with # are comments
//	$ kubectl get pods          a command; the lines below it, up to the next line with
//	NAME  READY  ...            $ or #, are all that it must print
//	[exit 1]                    the last of them, when it must fail
//	$ eventually kubectl ...    the same, tried again until it prints that
//	$ requests                  the requests of the kubectl before, without discovery
//	$ requests in full          the same, with what was sent to create and to replace
//	$ start NAME program ...    a program that runs until the transcript ends; what it says is in NAME.log
//	$ sed -i s/a/b/ file        anything else is for the shell, which has a kubectl too, and account NAMESPACE NAME,
//	                            which prints a kubeconfig for a service account
//
// Each command finds in force what was written before it, also what counts in the whole
// cluster (roles, classes, nodes): a transcript waits for what controllers and nodes do,
// and for nothing else.
//
// Where it runs: a namespace with the transcript's name, a folder with its files and
// the catalogue's sample objects in manifests/; the
// shell has the server's address in $SERVER, in $SAMPLES where it finds those by HTTP, and in
// $AUDIT the file with audit events of the namespace audit, and free ports in those that
// a line "# Ports: NAME ..." names. In expected output "..." is any text
// within a line, and alone on a line any number of lines. Before they are compared,
// runs of spaces become two, and what differs from run to run becomes a word: <uid>,
// <time>, <age>, <rev>, <ip>, <port>, <id> (the end of a generated name).
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runTranscript(t, file)
		})
	}
}

// transcript is a transcript that runs.
type transcript struct {
	t         *testing.T
	namespace string
	dir       string
	last      *kubectl
	env       []string
}

// block is a command and what it must print, or a comment (no command).
type block struct {
	text    string // the line
	line    int    // its number
	command string
	want    []string
	tail    int // empty lines after want
}

func runTranscript(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := txtar.Parse(data)
	blocks := parseBlocks(string(archive.Comment))
	cites := trace.NewScript(t, file)
	defer cites.End()
	tr := newTranscript(t, strings.TrimSuffix(filepath.Base(file), ".txt"), archive.Files)
	changed := false
	for i := range blocks {
		b := &blocks[i]
		if ids, ok := strings.CutPrefix(b.text, "# Proves:"); ok {
			cites.Cites(b.line, ids)
		}
		if names, ok := strings.CutPrefix(b.text, "# Ports:"); ok {
			for name := range strings.FieldsSeq(names) {
				tr.env = append(tr.env, fmt.Sprintf("%s=%d", name, port.Reserve(t)))
			}
		}
		if b.command == "" {
			continue
		}
		// What others decide by about its requests (roles, classes, nodes) is in force.
		if err := theServer.fresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := tr.try(b)
		if got == nil {
			cites.Passed()
			continue
		}
		if !*texttest.Update {
			t.Errorf("%s: $ %s\ngot:\n%s\nwant:\n%s", file, b.command, strings.Join(got, "\n"), strings.Join(b.want, "\n"))
			break
		}
		b.want, changed = got, true
	}
	if changed {
		archive.Comment = formatBlocks(blocks)
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func parseBlocks(text string) (blocks []block) {
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			blocks = append(blocks, block{text: line, line: i + 1, command: command})
			continue
		}
		if strings.HasPrefix(line, "# ") || line == "#" || len(blocks) == 0 || blocks[len(blocks)-1].command == "" {
			blocks = append(blocks, block{text: line, line: i + 1})
			continue
		}
		b := &blocks[len(blocks)-1]
		b.want = append(b.want, line)
	}
	for i := range blocks {
		b := &blocks[i]
		for len(b.want) > 0 && b.want[len(b.want)-1] == "" {
			b.want, b.tail = b.want[:len(b.want)-1], b.tail+1
		}
	}
	return blocks
}

func formatBlocks(blocks []block) []byte {
	var b bytes.Buffer
	for _, bl := range blocks {
		fmt.Fprintln(&b, bl.text)
		for _, line := range bl.want {
			fmt.Fprintln(&b, line)
		}
		b.WriteString(strings.Repeat("\n", bl.tail))
	}
	return b.Bytes()
}

func newTranscript(t *testing.T, namespace string, files []txtar.File) *transcript {
	t.Helper()
	theServer.namespace(t, namespace)
	tr := &transcript{t: t, namespace: namespace, dir: t.TempDir()}
	for _, f := range files {
		path := filepath.Join(tr.dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	samples, err := filepath.Abs("../../docs/requirements/manifests")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(samples, filepath.Join(tr.dir, "manifests")); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(theServer.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	if err := clientcmd.WriteToFile(*config, tr.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	tr.env = append(os.Environ(), "KUBECONFIG="+tr.kubeconfig(), "SERVER="+theServer.url, "SAMPLES="+theServer.samples.URL, "AUDIT="+filepath.Join(theServer.dir, "audit.log"), "PATH="+filepath.Join(theServer.dir, "bin")+":"+os.Getenv("PATH"))
	return tr
}

func (tr *transcript) kubeconfig() string { return filepath.Join(tr.dir, ".kubeconfig") }

// try runs a block and returns what it printed, or nil if that is what it must print.
func (tr *transcript) try(b *block) (got []string) {
	command, again := strings.CutPrefix(b.command, "eventually ")
	want := expectation(b.want)
	if !again {
		if got = tr.run(command); want.MatchString(strings.Join(got, "\n")) {
			return nil
		}
		return got[:len(got)-1]
	}
	patience := wait.Patience
	if *texttest.Update {
		patience = 15 * time.Second // what comes is not known
	}
	err := wait.Try(patience, func() error {
		if got = tr.run(command); !want.MatchString(strings.Join(got, "\n")) {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	if err == nil {
		return nil
	}
	return got[:len(got)-1]
}

// expectation is what the lines of a transcript match.
func expectation(lines []string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, line := range lines {
		line = spaces(line)
		if line == "..." {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		for i, part := range strings.Split(line, "...") {
			if i > 0 {
				b.WriteString(`.*`)
			}
			b.WriteString(regexp.QuoteMeta(part))
		}
		b.WriteString(`\n`)
	}
	b.WriteString(`\n?\z`)
	return regexp.MustCompile(b.String())
}

// run runs a command and returns what it printed, masked.
func (tr *transcript) run(command string) []string {
	if command == "requests" || command == "requests in full" {
		return tr.requests(command != "requests")
	}
	if rest, ok := strings.CutPrefix(command, "start "); ok {
		name, program, _ := strings.Cut(rest, " ")
		tr.start(name, program)
		return []string{""}
	}
	output, code := tr.execute(command)
	if code != 0 {
		if output != "" && !strings.HasSuffix(output, "\n") {
			output += "\n"
		}
		output += fmt.Sprintf("[exit %d]\n", code)
	}
	return tr.mask(output)
}

func (tr *transcript) execute(command string) (output string, code int) {
	args, rest := inProcess(command)
	if args == nil {
		return tr.shell(command, "")
	}
	tr.last = &kubectl{kubeconfig: tr.kubeconfig(), cacheDir: filepath.Join(theServer.dir, "cache"), stdin: strings.NewReader("")}
	for i := range args {
		args[i] = tr.path(args[i])
	}
	tr.last.piped = rest != ""
	code = tr.last.run(args)
	if rest == "" {
		return tr.last.output.String(), code
	}
	output, code = tr.shell(rest, tr.last.stdout.String())
	return tr.last.output.String() + output, code
}

// ownProcess begins the commands of kubectl that do not run in this process.
var ownProcess = []string{"config", "auth can-i", "proxy", "edit", "options", "completion", "plugin"}

// inProcess takes a kubectl command line apart; nil: a shell must run it. rest
// is what a shell is to do with its output.
func inProcess(command string) (args []string, rest string) {
	line, ok := strings.CutPrefix(command, "kubectl ")
	if !ok || strings.Contains(line, "--record") { // --record writes the process's own arguments into the object
		return nil, ""
	}
	for _, c := range ownProcess {
		if strings.HasPrefix(line, c+" ") || line == c {
			return nil, ""
		}
	}
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		switch line[0] {
		case '|':
			return args, line[1:]
		case '>':
			return args, "cat " + line
		}
		var word strings.Builder
		for line != "" && line[0] != ' ' {
			switch c := line[0]; c {
			case '\'', '"':
				quoted, after, ok := strings.Cut(line[1:], string(c))
				if !ok || c == '"' && strings.ContainsAny(quoted, "$\\`") {
					return nil, ""
				}
				word.WriteString(quoted)
				line = after
			case '|', '<', '>', '&', ';', '$', '`', '*', '\\':
				return nil, ""
			default:
				word.WriteByte(c)
				line = line[1:]
			}
		}
		args = append(args, word.String())
	}
	return args, ""
}

// path makes the name of a file in an argument a path: this process has another
// current folder. A name has a dot or a slash in it.
func (tr *transcript) path(arg string) string {
	for _, cut := range []int{0, strings.Index(arg, "=") + 1, strings.LastIndex(arg, "=") + 1} {
		name := strings.TrimPrefix(arg[cut:], "@")
		if strings.Trim(name, ".") == "" || !strings.ContainsAny(name, "./") || filepath.IsAbs(name) {
			continue
		}
		path := filepath.Join(tr.dir, name)
		if _, err := os.Stat(path); err == nil {
			return strings.TrimSuffix(arg, name) + path
		}
	}
	return arg
}

func (tr *transcript) shell(command, stdin string) (output string, code int) {
	ctx, cancel := context.WithTimeout(tr.t.Context(), 4*wait.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", command)
	c.Dir, c.Env, c.Stdin = tr.dir, tr.env, strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		tr.t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// start runs a program beside the commands that follow. It is told to end when the transcript has ended.
func (tr *transcript) start(name, program string) {
	log, err := os.Create(filepath.Join(tr.dir, name+".log"))
	if err != nil {
		tr.t.Fatal(err)
	}
	c := exec.CommandContext(tr.t.Context(), "sh", "-c", "exec "+program)
	c.Dir, c.Env, c.Stdout, c.Stderr, c.WaitDelay = tr.dir, tr.env, log, log, 10*time.Second
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	if err := c.Start(); err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() {
		ended := c.Wait() // as the end of the test has told it to
		if err := log.Close(); err != nil {
			tr.t.Error(err)
		}
		if said, err := os.ReadFile(log.Name()); tr.t.Failed() || err != nil {
			tr.t.Logf("%s: %v\n%s%v", name, ended, said[max(0, len(said)-20_000):], err)
		}
	})
}

// requests shows what the last kubectl asked the server, and if whole is true all that it sent.
func (tr *transcript) requests(whole bool) []string {
	var b strings.Builder
	for _, r := range tr.last.requests {
		fmt.Fprintf(&b, "%s %s %d\n", r.method, r.uri, r.code)
		if r.method == "PATCH" || r.method == "DELETE" || whole && r.body != "" {
			if r.method == "PATCH" {
				fmt.Fprintf(&b, "  %s\n", r.media)
			}
			fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(r.body))
		}
	}
	return tr.mask(b.String())
}

// mask puts words in the place of what differs from run to run.
func (tr *transcript) mask(output string) []string {
	output = strings.ReplaceAll(output, tr.dir+"/", "")
	output = strings.ReplaceAll(output, theServer.url, "https://SERVER")
	output = strings.ReplaceAll(output, theServer.samples.URL, "http://SAMPLES")
	for _, m := range masks {
		output = m.re.ReplaceAllString(output, m.with)
	}
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	for i := range lines {
		lines[i] = spaces(lines[i])
	}
	return append(lines, "")
}

func TestAgesAreMaskedHoweverBusyTheMachineWas(t *testing.T) {
	tr := &transcript{dir: t.TempDir()}
	for age, want := range map[string]string{"5s": "<age>", "119s": "<age>", "2m": "<age>", "2m1s": "<age>", "9m59s": "<age>", "10m": "<age>", "100m": "100m"} {
		if got := tr.mask("web  " + age); got[0] != "web  "+want {
			t.Errorf("%s: got %q, want %q", age, got[0], "web  "+want)
		}
		if got := tr.mask("(x2 over " + age + ")"); got[0] != "(x2 over "+want+")" {
			t.Errorf("%s: got %q, want %q", age, got[0], "(x2 over "+want+")")
		}
	}
}

type mask struct {
	re   *regexp.Regexp
	with string
}

var masks = []mask{
	// What programs on client-go log beside what they say.
	{regexp.MustCompile(`(?m)^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ .*\n`), ""},
	{regexp.MustCompile(`\beyJ[-\w]+\.eyJ[-\w]+\.[-\w]+`), "<token>"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d{4})?`), "<time>"},
	{regexp.MustCompile(`\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d [+-]\d{4}`), "<date>"},
	{regexp.MustCompile(`(?i)("?resource ?version"?(:|=|%3D) *)"?[1-9][0-9]*"?`), "$1<rev>"},
	{regexp.MustCompile(`(LIVE|MERGED)-\d+`), "$1"},
	{regexp.MustCompile(`/tmp/(LIVE|MERGED)`), "$1"},
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "<ip>"},
	// On a busy machine ages reach minutes, some of them whole: 2m.
	{regexp.MustCompile(`(?m)(  +|^)(\d+m\d+s|\d+s|\d{1,2}m)( |$)`), "$1<age>$3"},
	{regexp.MustCompile(`\(x(\d+) over (\d+m\d+s|\d+s|\d{1,2}m)\)`), "(x$1 over <age>)"},
	{regexp.MustCompile(`\b3[0-2]\d{3}(/TCP|$)`), "<port>$1"},
	{regexp.MustCompile(`(?m)([nN]odePort"?: )3[0-2]\d{3}\b`), "$1<port>"},
	// Letters and digits of generated names: no vowels, no 0, 1 and 3.
	{regexp.MustCompile(`kube-api-access-\w{5}`), "kube-api-access-<id>"},
	{regexp.MustCompile(`-([bcdfghjklmnpqrstvwxz2456789]{8,10})-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "-$1-<id>"},
}

var manySpaces = regexp.MustCompile(`(\S)   *`)

// spaces makes each run of spaces two, but for the indent: how wide a column is
// depends on what was masked.
func spaces(line string) string {
	return strings.TrimRight(manySpaces.ReplaceAllString(line, "$1  "), " ")
}
