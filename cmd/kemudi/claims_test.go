package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/trace"
)

// otherwise holds flags and admission plugins that requirements name and kemudi does
// not have, with what stands for each.
var otherwise = map[string]string{
	"--cacert": "a flag of curl",
}

var (
	someFlag = regexp.MustCompile(`(?:^|[^\w-])(--[a-z][a-z0-9-]*[a-z0-9])`)
	someID   = regexp.MustCompile(`\b[A-Z]{2,8}-K?[0-9]{2,3}\b`)
	aPlugin  = regexp.MustCompile("`([A-Z][A-Za-z]+)` admission (?:plug-?in|controller)|[Aa]dmission (?:plug-?in|controller) `([A-Z][A-Za-z]+)`")
)

// A requirement that some test proves may name only flags and admission plugins that
// there are: else the proof is of less than it says.
func TestFlagsAndPluginsThatProofsNameExist(t *testing.T) {
	t.Parallel()
	catalogue, err := trace.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, root := range []*cobra.Command{newRoot(), kubectlcmd.NewDefaultKubectlCommand()} {
		everyFlag(root, func(f *pflag.Flag) { have["--"+f.Name] = true })
	}
	on, off := cluster.AdmissionPlugins()
	for _, name := range slices.Concat(on, off) {
		have[name] = true
	}
	used := map[string]bool{}
	for id, where := range citations(t, "../..") {
		r, ok := catalogue.Lookup(id)
		if !ok {
			continue
		}
		names := slices.Concat(someFlag.FindAllStringSubmatch(r.Text, -1), aPlugin.FindAllStringSubmatch(r.Text, -1))
		for _, m := range names {
			name := strings.Join(m[1:], "")
			if otherwise[name] != "" {
				used[name] = true
			} else if !have[name] {
				t.Errorf("%s is proved by %s and names %s, which is not there: %s", id, where, name, r.Text)
			}
		}
	}
	for name := range otherwise {
		if !used[name] || have[name] {
			t.Errorf("otherwise has %s, which no proved requirement names, or which exists: remove it", name)
		}
	}
}

// everyFlag calls fn with each flag of a command and of those below it, hidden ones too.
func everyFlag(c *cobra.Command, fn func(*pflag.Flag)) {
	c.Flags().VisitAll(fn)
	c.PersistentFlags().VisitAll(fn)
	for _, sub := range c.Commands() {
		everyFlag(sub, fn)
	}
}

// citations are the IDs in the tests below dir and in their texts, each with a file
// that has it.
func citations(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != dir && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") && !(strings.Contains(path, "/testdata/") && strings.HasSuffix(path, ".txt")) {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, id := range someID.FindAllString(string(text), -1) {
			found[id] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPluginsAreNamedAndChecked(t *testing.T) {
	t.Parallel()
	r := call{}.run(t, "server", "--help")
	for _, want := range []string{"AlwaysPullImages, ImagePolicyWebhook, PodNodeSelector,", "admission plugins to turn off that are on: NamespaceLifecycle,"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("help of the server: got\n%s\nwant %q in it", r.stdout, want)
		}
	}
	r = call{}.run(t, "server", "--enable-admission-plugins", "AlwaysPullImages,Nothing")
	if r.code != exitUsage || !strings.Contains(r.stderr, `there is no plugin "Nothing"; there are AlwaysAdmit, AlwaysDeny, AlwaysPullImages, CertificateApproval,`) {
		t.Errorf("a plugin that is not there: got %+v", r)
	}
}
