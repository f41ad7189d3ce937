package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
)

// settled parses a command line, then environment and file, and returns the
// command without running it.
func settled(t *testing.T, args ...string) (*cobra.Command, error) {
	t.Helper()
	var ran *cobra.Command
	root := newRoot()
	everyCommand(root, func(c *cobra.Command) {
		c.Run, c.RunE = nil, func(c *cobra.Command, _ []string) error { ran = c; return nil }
	})
	root.SetArgs(args)
	err := root.Execute()
	return ran, err
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFlagGoesBeforeEnvironmentBeforeFile(t *testing.T) {
	file := configFile(t, "secure-port: 1111\nmax-pods: 11\nnode-name: file\n")
	t.Setenv("KEMUDI_SECURE_PORT", "2222")
	t.Setenv("KEMUDI_MAX_PODS", "22")
	t.Setenv("KEMUDI_CONFIG", file)
	c, err := settled(t, "server", "--secure-port", "3333")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"secure-port": "3333", "max-pods": "22", "node-name": "file", "cluster-domain": "cluster.local"} {
		if got := c.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("--%s: got %q, want %q", name, got, want)
		}
	}
}

// Whatever is a flag can be said in all three ways, and means the same.
func TestEveryFlagIsAVariableAndAKey(t *testing.T) {
	values := map[string]string{ // by the type of the flag
		"string": "text", "uint16": "4711", "uint32": "4711", "int": "4711", "int64": "4711", "bool": "true", "duration": "47s", "float32": "0.47", "float64": "0.47", "ip": "10.1.2.3", "ips": "10.1.2.3", "ip:port": "10.1.2.3:4711", "quantity": "47Mi", "signal<value,...": "memory.available<47Mi", "cidrs": "10.47.0.0/16",
		"signal=value,...": "nodefs.available=47Mi", "signal=duration,...": "memory.available=47s", "priority=duration,...": "47=47s",
		"ports": "30047-30048", "map": "batch/v1=false", "gates": "WatchList=true", "claim=value": "hd=example.com", "taints": "k=v:NoSchedule", "stringSlice": "a,b", "stringArray": "a", "stringToString": "k=v", "plugins": "AlwaysPullImages", "resource=quantity,...": "cpu=47m", "node:kind=quantity,...": "0:memory=47Mi", "name=program,...": "crun=/usr/bin/crun", "format": "json", "part": "server",
		"version": "VersionTLS13", "names": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "numbers": "29,23", "name:value,...": "X-Who:me", "namedCertKey": "a.crt,a.key:*.example.com", "endpoint=address,...": "endpoint=localhost:4711,samplingRatePerMillion=47",
	}
	everyCommand(newRoot(), func(c *cobra.Command) {
		if c.HasSubCommands() || c.Name() == "kubectl" || c.Name() == "help" || c.HasParent() && c.PersistentPreRunE != nil || c.Parent().Name() == "completion" {
			return
		}
		path := append(strings.Fields(c.CommandPath())[1:], map[string][]string{"backup": {"x"}, "import": {"x"}, "pull": {"x"}, "rm": {"x"}, "remove": {"x"}, "revoke": {"abcdef"}, "drain": {"x"}}[c.Name()]...)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if asksOnly(f) || f.Name == configFlag {
				return
			}
			t.Run(c.CommandPath()+" --"+f.Name, func(t *testing.T) {
				value := values[f.Value.Type()]
				if f.Name == "log-level" || f.Name == "log-format" {
					value = f.DefValue
				}
				if value == "" {
					t.Fatalf("no value for a flag of type %s", f.Value.Type())
				}
				want := valueOf(t, f.Name, append(path, "--"+f.Name+"="+value))
				file := configFile(t, fmt.Sprintf("%s: %q\n", f.Name, value))
				if got := valueOf(t, f.Name, append(path, "--config", file)); got != want {
					t.Errorf("as a key: got %q, want %q", got, want)
				}
				t.Setenv(environmentName(f.Name), value)
				if got := valueOf(t, f.Name, path); got != want {
					t.Errorf("as a variable: got %q, want %q", got, want)
				}
			})
		})
	})
}

func valueOf(t *testing.T, flag string, args []string) string {
	t.Helper()
	c, err := settled(t, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return c.Flags().Lookup(flag).Value.String()
}

func TestReadsListsAndMaps(t *testing.T) {
	file := configFile(t, `
# all forms that YAML has for them
tls-san: [a.example, "192.0.2.1"]
service-cluster-ip-range: [10.96.0.0/16, "fd00::/112"]
runtime-config: {batch/v1beta1: false, extensions/v1beta1: true}
node-labels: {disk: ssd, rank: 1, on: true}
register-with-taints: ["a=b:NoSchedule", "c:NoExecute"]
disable-agent: true
encoded-cache-bytes: 67108864
node-monitor-grace-period: 1m
resolv-conf:
`)
	c, err := settled(t, "server", "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"tls-san": "[a.example,192.0.2.1]", "service-cluster-ip-range": "10.96.0.0/16,fd00::/112", "register-with-taints": "a=b:NoSchedule,c:NoExecute",
		"disable-agent": "true", "encoded-cache-bytes": "67108864", "node-monitor-grace-period": "1m0s", "resolv-conf": "/etc/resolv.conf",
	} {
		if got := c.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("--%s: got %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string][]string{"node-labels": {"disk=ssd", "rank=1", "true=true"}, "runtime-config": {"batch/v1beta1=false", "extensions/v1beta1=true"}} {
		got := c.Flags().Lookup(name).Value.String()
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("--%s: got %q, want %q in it", name, got, part)
			}
		}
	}
}

func TestAllCommandsShareTheFile(t *testing.T) {
	file := configFile(t, "data-dir: /srv/kemudi\nsecure-port: 7443\n")
	for _, args := range [][]string{{"server"}, {"up"}, {"status"}, {"down"}, {"reset"}, {"image", "ls"}} {
		c, err := settled(t, append(args, "--config", file)...)
		if err != nil {
			t.Errorf("%v: %v", args, err)
		} else if got := c.Flags().Lookup("data-dir").Value.String(); got != "/srv/kemudi" {
			t.Errorf("%v: got data directory %s", args, got)
		}
	}
}

func TestRefusesWrongSettings(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":      {"secure-prot: 6443\n", `unknown key "secure-prot"`},
		"not a key":        {"config: x\n", `unknown key "config"`},
		"every wrong key":  {"a: 1\nb: 2\n", "unknown key \"a\"\nunknown key \"b\""},
		"wrong value":      {"secure-port: http\n", `secure-port: invalid argument "http"`},
		"twice":            {"max-pods: 1\nmax-pods: 2\n", `key "max-pods" already set in map`},
		"list of lists":    {"tls-san: [[a]]\n", "tls-san: [a] is neither a text, a number nor true or false"},
		"map of maps":      {"node-labels: {a: {b: c}}\n", "node-labels: a: map[b:c] is neither"},
		"not YAML":         {"max-pods: [\n", "yaml:"},
		"not a map":        {"- max-pods\n", "cannot unmarshal"},
		"fraction":         {"max-pods: 1.5\n", `max-pods: invalid argument "1.5"`},
		"Go field's name":  {"SecurePort: 6443\n", `unknown key "SecurePort"`},
		"list for one":     {"max-pods: [1, 2]\n", `parsing "1,2"`},
		"prefix of nobody": {"cluster-cidr: 10.0.0.0/33\n", "cluster-cidr:"},
	} {
		t.Run(name, func(t *testing.T) {
			file := configFile(t, tc.text)
			_, err := settled(t, "server", "--config", file)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v, want %q and the file's name", err, tc.want)
			}
			r := call{}.run(t, "server", "--config", file)
			if r.code != exitUsage {
				t.Errorf("got %+v, want exit code 2", r)
			}
		})
	}
	t.Setenv("KEMUDI_SECURE_PORT", "http")
	if _, err := settled(t, "server"); err == nil || !strings.Contains(err.Error(), "KEMUDI_SECURE_PORT: ") {
		t.Errorf("wrong variable: got %v", err)
	}
	if _, err := settled(t, "status", "--config", "/no/such/file"); err == nil || !strings.Contains(err.Error(), "read configuration: open /no/such/file: no such file or directory") {
		t.Errorf("no file: got %v", err)
	}
}

func TestNodePortAddressesAreNamedByWordsToo(t *testing.T) {
	for given, want := range map[string]string{
		"192.0.2.7/32":                "192.0.2.7/32",
		"primary":                     "primary",
		"192.0.2.0/24,primary":        "primary,192.0.2.0/24",
		"primary,localhost":           "primary,127.0.0.0/8,::1/128",
		"primary,127.0.0.0/8,::1/128": "primary,127.0.0.0/8,::1/128",
		"all":                         "",
		"192.0.2.7/32,primary,all":    "",
	} {
		c, err := settled(t, "server", "--nodeport-addresses", given)
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		if got := c.Flags().Lookup("nodeport-addresses").Value.String(); got != want {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
	}
	if _, err := settled(t, "server", "--nodeport-addresses", "primary,secondary"); err == nil || !strings.Contains(err.Error(), `"secondary"`) {
		t.Errorf("got error %v, want one about secondary", err)
	}
}

func TestWhatServersMustHaveAlikeIsSaidByTheirFlags(t *testing.T) {
	o, flags, asked := cluster.Defaults(), newServer().Flags(), 0
	o.Say(func(flag string) bool {
		asked++
		if flags.Lookup(flag) == nil {
			t.Errorf("kemudi server has no flag --%s", flag)
		}
		return true
	})
	if asked < 20 {
		t.Errorf("asked for %d flags", asked)
	}
}
