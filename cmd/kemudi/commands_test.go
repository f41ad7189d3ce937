package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/up"
)

// asKemudi makes the test program be kemudi.
const asKemudi = "KEMUDI_TEST_AS_KEMUDI"

func TestMain(m *testing.M) {
	if os.Getenv(asKemudi) != "" {
		os.Unsetenv(asKemudi)
		main()
	}
	os.Exit(m.Run())
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// call is one run of the program by a person who has nothing: an empty home,
// no cluster.
type call struct {
	name string // what the program is called as; default kemudi
	env  []string
}

func (c call) run(t *testing.T, args ...string) result {
	t.Helper()
	home := t.TempDir()
	cmd := exec.Command(os.Args[0], args...)
	if c.name != "" {
		cmd.Args[0] = c.name
	}
	cmd.Dir = home
	cmd.Env = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), asKemudi + "=1"}, c.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// everyCommand calls f with each command that people see.
func everyCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			everyCommand(sub, f)
		}
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	everyCommand(newRoot(), func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short help is %q; want a phrase without a full stop", path, c.Short)
		}
		if c.Example == "" {
			t.Errorf("%s: no example", path)
		}
		for line := range strings.Lines(c.Example) {
			if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: example is not indented: %q", path, line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s says nothing", path, f.Name)
			}
		})
	})
}

// Examples are what people copy: their commands and flags must exist.
func TestExamplesParse(t *testing.T) {
	everyCommand(newRoot(), func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(line, "#")
			for part := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune("&|()", r) }) {
				words := strings.Fields(part)
				if len(words) < 2 || words[0] != "kemudi" || words[1] == "kubectl" {
					continue
				}
				named, rest, err := newRoot().Find(words[1:])
				if err == nil {
					named.Flags().AddFlagSet(named.InheritedFlags())
					err = named.ParseFlags(rest)
				}
				if err == nil && named.Args != nil {
					err = named.Args(named, named.Flags().Args())
				}
				if err != nil {
					t.Errorf("%s: example %q: %v", c.CommandPath(), strings.TrimSpace(part), err)
				}
			}
		}
	})
}

// Each field of the server's options says by which flag it is set.
func TestEveryServerOptionIsAFlag(t *testing.T) {
	var text []byte
	for _, name := range []string{"../../internal/cluster/options.go", "../../internal/kubelet/settings.go"} {
		part, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	named := regexp.MustCompile(`// --([a-z][a-z-]*)`).FindAllSubmatch(text, -1)
	if len(named) < 10 {
		t.Fatalf("found only %d flags in the comments", len(named))
	}
	flags := newServer().Flags()
	for _, m := range named {
		if flags.Lookup(string(m[1])) == nil {
			t.Errorf("the options name --%s, which kemudi server does not have", m[1])
		}
	}
}

func TestDefaultsShownAreThoseUsed(t *testing.T) {
	flags := newServer().Flags()
	for name, want := range map[string]string{
		"data-dir": cluster.DefaultDataDir, "run-dir": cluster.DefaultRunDir, "secure-port": "6443", "max-pods": "110", "cluster-domain": "cluster.local",
		"node-cidr-mask-size": "0", "node-cidr-mask-size-ipv4": "24", "node-cidr-mask-size-ipv6": "64",
	} {
		if got := flags.Lookup(name).DefValue; got != want {
			t.Errorf("--%s: default %q, want %q", name, got, want)
		}
	}
}

// The sizes of both families are shown as they are when nobody says one; to say one is something
// else, be it the same.
func TestShareOfTheOnlyFamilyStandsAlone(t *testing.T) {
	for args, refused := range map[string]bool{
		"":                         false,
		"--node-cidr-mask-size=26": false,
		"--node-cidr-mask-size-ipv4=24 --node-cidr-mask-size-ipv6=64": false,
		"--node-cidr-mask-size=26 --node-cidr-mask-size-ipv4=24":      true,
		"--node-cidr-mask-size=64 --node-cidr-mask-size-ipv6=64":      true,
	} {
		o := cluster.Defaults()
		f := pflag.NewFlagSet("server", pflag.ContinueOnError)
		addServerFlags(f, &o)
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if err := o.Controllers.Check(); (err != nil) != refused {
			t.Errorf("%q: got %v, want refused: %v", args, err, refused)
		}
	}
}

// Nobody said 0 who says nothing.
func TestLimitOfNothingIsNotTheDefault(t *testing.T) {
	for args, want := range map[string]int{
		"":                                  12500,
		"--terminated-pod-gc-threshold=7":   7,
		"--terminated-pod-gc-threshold=0":   -1,
		"--terminated-pod-gc-threshold=-20": -1,
	} {
		o := cluster.Defaults()
		f := pflag.NewFlagSet("server", pflag.ContinueOnError)
		addServerFlags(f, &o)
		if err := f.Parse(strings.Fields(args)); err != nil || o.Controllers.PodGC.Threshold != want {
			t.Errorf("%q: got %d, %v, want %d", args, o.Controllers.PodGC.Threshold, err, want)
		}
	}
	if err := newServer().Flags().Set("terminated-pod-gc-threshold", "many"); err == nil {
		t.Error("many is taken for a number")
	}
}

func TestWrongCommandLinesEndWithCode2(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"status --no-such-flag":              "unknown flag: --no-such-flag",
		"status -o yaml":                     `"yaml" is neither json nor empty`,
		"version --output=wide":              `"wide" is neither json nor empty`,
		"image ls -o table":                  `"table" is neither json nor empty`,
		"down please":                        `unknown command "please" for "kemudi down"`,
		"statsu":                             `unknown command "statsu" for "kemudi"; did you mean status?`,
		"image prune":                        `unknown command "prune" for "kemudi image"`,
		"image remove":                       "nothing is named; want kemudi image rm NAME...",
		"image import":                       "nothing is named; want kemudi image import FILE...",
		"image pull":                         "nothing is named; want kemudi image pull NAME...",
		"member remove a b":                  `"b" is too much; want kemudi member remove NAME`,
		"simulate drain":                     "nothing is named; want kemudi simulate drain NODE",
		"up --servers 0":                     "--servers 0: a cluster has one at least",
		"up --agents -1":                     "--agents -1 is negative",
		"up web.yaml":                        `unexpected argument "web.yaml": flags for the server go after --`,
		"server --secure-port 70000":         "--secure-port",
		"server --node-ip here":              `unable to parse IP`,
		"server --cluster-cidr 10.0.0.0":     "no '/'",
		"server --service-node-port-range 9": "not of the form 30000-32767",
		"server --register-with-taints a=b":  "key=value:effect",
		"server --runtime-config a=maybe":    "a=maybe",
		"server --log-level loud":            `log level "loud": must be debug, info, warn or error`,
		"server --max-pods many":             "--max-pods",
		"server now":                         `unknown command "now"`,
		"--config":                           "needs an argument",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			r := call{}.run(t, strings.Fields(args)...)
			if r.code != exitUsage || r.stdout != "" || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, helpOf(args)) {
				t.Errorf("got %+v; want exit code 2, %q and %q", r, want, helpOf(args))
			}
		})
	}
}

// helpOf is how the help is had of the command that a command line calls.
func helpOf(args string) string {
	root := newRoot()
	if c, _, err := root.Find(strings.Fields(args)); err == nil {
		return "run '" + c.CommandPath() + " --help'"
	}
	return "run '" + root.Name() + " --help'"
}

func TestCommandsWithoutAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dirs := []string{"--data-dir", dir + "/data", "--run-dir", dir + "/run"}
	for _, tc := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"", 0, "Usage:\n  kemudi", ""},
		{"", 0, "A cluster on this machine:\n  backup ", ""},
		{"image", 0, "Available Commands:\n  import ", ""},
		{"help server", 0, "KEMUDI_DATA_DIR", ""},
		{"server --help", 0, "--service-cluster-ip-range", ""},
		{"status DIRS", exitNo, "no server is running; start one with: kemudi up\n", ""},
		{"down DIRS", 0, "no server is running\n", ""},
		{"up DIRS --join 10.0.0.1", exitUsage, "", "--join needs a token (--token-file, --token): kemudi token create makes one, on a server"},
		{"up DIRS --join 10.0.0.1 --token-file /nowhere/token", exitError, "", "--token-file: open /nowhere/token: no such file or directory"},
		{"up DIRS --join 10.0.0.1 --token abc", exitUsage, "", "token"},
		{"up DIRS --join-as server", exitUsage, "", "--join-as says what this machine is to become in the cluster of --join"},
		{"up DIRS --join 10.0.0.1 --token abcdef.0123456789abcdef --agents 2", exitUsage, "", "--join and --agents: that is for a cluster that begins on this machine"},
		{"image ls DIRS", exitError, "", "is the server running? (kemudi status)"},
		{"image list DIRS", exitError, "", "is the server running? (kemudi status)"},
		{"image remove DIRS web:1", exitError, "", "is the server running? (kemudi status)"},
		{"image list --help", 0, "kemudi image ls -o json", ""},
		{"image rm DIRS web:1", exitError, "", "is the server running? (kemudi status)"},
		{"image pull DIRS web:1", exitError, "", "is the server running? (kemudi status)"},
		{"image import DIRS web.tar", exitError, "", "is the server running? (kemudi status)"},
		{"simulate drain n1", exitError, "", "no simulation has run here (kemudi simulate starts one)"},
		{"version", 0, "(Kubernetes v1.", ""},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			var args []string
			for _, word := range strings.Fields(tc.args) {
				if word == "DIRS" {
					args = append(args, dirs...)
				} else {
					args = append(args, word)
				}
			}
			r := call{}.run(t, args...)
			if r.code != tc.code || !strings.Contains(r.stdout, tc.stdout) || !strings.Contains(r.stderr, tc.stderr) || tc.stderr == "" && r.stderr != "" {
				t.Errorf("got %+v; want exit code %d, %q and %q", r, tc.code, tc.stdout, tc.stderr)
			}
		})
	}
}

func TestAnswersAsJSON(t *testing.T) {
	t.Parallel()
	var s up.State
	r := call{}.run(t, "status", "-o", "json", "--run-dir", t.TempDir())
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || r.code != exitNo || s.Running || s.Ready {
		t.Errorf("status: got %+v, %v", r, err)
	}
	var v map[string]string
	r = call{}.run(t, "version", "--output", "json")
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || r.code != 0 || v["gitVersion"] == "" || v["goVersion"] == "" || v["platform"] == "" {
		t.Errorf("version: got %+v, %v", r, err)
	}
}

func TestSizesAreForPeople(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 6895834: "6.6 MiB", 3 << 30: "3.0 GiB", 5 << 40: "5120.0 GiB"} {
		if got := sizeText(bytes); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
}

func TestCompletesForEveryShell(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{
		"bash": "complete -o default -F __start_kemudi kemudi", "zsh": "#compdef kemudi", "fish": "complete -c kemudi", "powershell": "Register-ArgumentCompleter",
	} {
		r := call{}.run(t, "completion", shell)
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("%s: exit code %d, %d bytes, %q; want %q in it", shell, r.code, len(r.stdout), r.stderr, want)
		}
		if _, err := exec.LookPath(shell); err != nil || shell == "powershell" {
			continue
		}
		check := exec.Command(shell, "-n")
		check.Stdin = strings.NewReader(r.stdout)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s does not understand it: %v\n%s", shell, err, out)
		}
	}
	if r := (call{}).run(t, "__complete", "im"); !strings.Contains(r.stdout, "image\tImport, list, pull and remove") {
		t.Errorf("completion of im: got %+v", r)
	}
}

func TestIsKubectlWhenCalledSo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
	}{{"kubectl", nil}, {"/usr/local/bin/kubectl", nil}, {"", []string{"kubectl"}}} {
		r := call{name: c.name}.run(t, append(c.args, "version", "--client", "-v=1", "-o", "json")...)
		if r.code != 0 || !strings.Contains(r.stdout, `"clientVersion"`) {
			t.Errorf("%s %v: got %+v", c.name, c.args, r)
		}
		r = call{name: c.name}.run(t, append(c.args, "get", "--no-such-flag")...)
		if r.code != 1 || !strings.Contains(r.stderr, "unknown flag: --no-such-flag") {
			t.Errorf("%s %v with a wrong flag: got %+v; want kubectl's exit code 1", c.name, c.args, r)
		}
	}
}

// A person who has no kubeconfig gets the server's; who has one keeps it.
func TestKubectlFindsTheServerOfThisMachine(t *testing.T) {
	t.Parallel()
	const config = "apiVersion: v1\nkind: Config\ncurrent-context: %[1]s\ncontexts:\n- {name: %[1]s, context: {cluster: c, user: u}}\nclusters:\n- {name: c, cluster: {server: 'https://127.0.0.1:1'}}\n"
	data := t.TempDir()
	if err := os.WriteFile(up.AdminKubeconfig(data), fmt.Appendf(nil, config, "of-the-server"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "own")
	if err := os.WriteFile(own, fmt.Appendf(nil, config, "own"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := "KEMUDI_DATA_DIR=" + data
	for want, env := range map[string][]string{"of-the-server\n": {server}, "own\n": {server, "KUBECONFIG=" + own}} {
		if r := (call{env: env}).run(t, "kubectl", "config", "current-context"); r.stdout != want {
			t.Errorf("with %v: got %+v, want %q", env, r, want)
		}
	}
}

// nobody is a user who may do nothing.
const nobody = 65534

func TestErrorsSayWhatTheyMeanMostLikely(t *testing.T) {
	t.Parallel()
	denied := &os.PathError{Op: "mkdir", Path: "/var/lib/kemudi", Err: os.ErrPermission}
	if got := explain(denied, nobody).Error(); got != "mkdir /var/lib/kemudi: permission denied; this needs root: try sudo" {
		t.Errorf("somebody: got %q", got)
	}
	if got := explain(denied, 0); !errors.Is(got, denied) || strings.Contains(got.Error(), "sudo") {
		t.Errorf("root: got %q", got)
	}
	if got := explain(errAsking{syscall.ECONNREFUSED}, 0); !errors.Is(got, syscall.ECONNREFUSED) || !strings.Contains(got.Error(), "is the server running? (kemudi status)") {
		t.Errorf("no server: got %q", got)
	}
	if got := explain(syscall.ECONNREFUSED, 0); got != syscall.ECONNREFUSED {
		t.Errorf("somebody else's server: got %q", got)
	}
	if got := explain(io.EOF, nobody); got != io.EOF {
		t.Errorf("another error: got %q", got)
	}
}

// TestDirectoriesDoNotDependOnTheWorkingDirectory of whoever runs a command.
func TestDirectoriesDoNotDependOnTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c, _, err := newRoot().Find([]string{"reset"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ParseFlags([]string{"--data-dir", "data", "--run-dir", "/run/../run/x/"}); err != nil {
		t.Fatal(err)
	}
	if data, run := c.Flags().Lookup("data-dir").Value.String(), c.Flags().Lookup("run-dir").Value.String(); data != dir+"/data" || run != "/run/x" {
		t.Errorf("got %s and %s", data, run)
	}
}

// TestOutputsAreCompleted by the shell.
func TestOutputsAreCompleted(t *testing.T) {
	for _, of := range [][]string{{"status"}, {"version"}, {"image", "ls"}, {"image", "list"}} {
		if r := (call{}).run(t, slices.Concat([]string{"__complete"}, of, []string{"-o", ""})...); !strings.HasPrefix(r.stdout, "json\n") {
			t.Errorf("%v -o: got %+v", of, r)
		}
	}
}

// TestWhoHasNoHomeGetsTheOneOfTheirAccount: what is not there must not land in the
// working directory.
func TestWhoHasNoHomeGetsTheOneOfTheirAccount(t *testing.T) {
	me, err := user.Current()
	if err != nil || me.HomeDir == "" {
		t.Skip("this account has no home")
	}
	r := call{env: []string{"HOME="}}.run(t, "up", "--help")
	if want := filepath.Join(me.HomeDir, ".kube/config"); r.code != 0 || !strings.Contains(r.stdout, `(default "`+want+`")`) {
		t.Errorf("got %+v, want it to name %s", r, want)
	}
}

// TestTipsAreWhatPeopleCanType in the shell from which they called the program.
func TestTipsAreWhatPeopleCanType(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no kubectl
	args0 := os.Args[0]
	os.Args[0] = "bin/kemudi"
	t.Cleanup(func() { os.Args[0] = args0 })
	c, _, err := newRoot().Find([]string{"up"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ParseFlags([]string{"--data-dir", "/srv/my data"}); err != nil {
		t.Fatal(err)
	}
	o := up.Options{DataDir: "/srv/my data"}
	got := tips(c, o, []string{"http://192.0.2.1:30080/"})
	const access = "--kubeconfig '/srv/my data/admin.kubeconfig'"
	want := "\nTry next:\n  bin/kemudi kubectl " + access + " get pods -A\n  bin/kemudi kubectl " + access + " get nodes -o wide\n" +
		"  curl http://192.0.2.1:30080/\n  bin/kemudi status --data-dir '/srv/my data'\n  bin/kemudi down --data-dir '/srv/my data'\n" +
		"  bin/kemudi token create --data-dir '/srv/my data'   # lets another machine join, and says what to type there\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	o.Kubeconfig = up.DefaultKubeconfig()
	if got := tips(c, o, nil); !strings.Contains(got, "\n  bin/kemudi kubectl get pods -A\n") {
		t.Errorf("with the usual kubeconfig: got\n%s", got)
	}
}
