package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestReadsConfigurations runs testdata/*.txt. Each configuration ends with a line
// "?", which lines "= RESULT" follow: what is wrong, or how it differs from the
// default. One without an apiVersion is of v1.
func TestReadsConfigurations(t *testing.T) {
	texttest.Run(t, "testdata/*.txt", func(t *testing.T, file, text string) string {
		cites := trace.NewScript(t, file)
		var out, doc []string
		for i, line := range strings.Split(text, "\n") {
			switch {
			case strings.HasPrefix(line, "= "):
				continue
			case strings.HasPrefix(line, "proves "):
				cites.Cites(i+1, strings.TrimPrefix(line, "proves "))
			case !strings.HasPrefix(line, "#") && line != "?":
				doc = append(doc, line)
			}
			if out = append(out, line); line == "?" {
				for _, l := range read(strings.Join(doc, "\n")) {
					out = append(out, "= "+l)
				}
				doc = nil
				cites.Passed()
			}
		}
		cites.End()
		return strings.Join(out, "\n")
	})
}

func read(doc string) []string {
	if !strings.Contains(doc, "apiVersion: ") {
		doc = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" + doc
	}
	c, err := Parse([]byte(doc))
	if err != nil {
		return strings.Split(err.Error(), "\n")
	}
	d := Default()
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if c.PodInitialBackoff != d.PodInitialBackoff || c.PodMaxBackoff != d.PodMaxBackoff {
		say("back-off %v to %v", c.PodInitialBackoff, c.PodMaxBackoff)
	}
	if l := c.LeaderElection; !reflect.DeepEqual(l, d.LeaderElection) {
		say("leader elected: %t, lease %s/%s of %v, renewed in %v, tried every %v", !l.Off, l.Namespace, l.Lease(0), l.LeaseDuration, l.RenewDeadline, l.RetryPeriod)
	}
	if c.Parallelism != d.Parallelism {
		say("%d evictions at once", c.Parallelism)
	}
	for _, idle := range c.Idle {
		say("%s has no effect: %s", idle.Field, idle.Why)
	}
	for _, e := range c.Extenders {
		say("extender %s timeout %v", e.Name(), e.Client.Timeout)
	}
	for _, p := range c.Profiles {
		out = append(out, differences(&p)...)
	}
	return out
}

// differences says how a profile differs from that of a scheduler that is told nothing.
func differences(p *Profile) []string {
	out := []string{fmt.Sprintf("profile %s", p.Name)}
	if p.PercentageOfNodesToScore != 0 {
		out[0] += fmt.Sprintf(", %d %% of the nodes", p.PercentageOfNodesToScore)
	}
	d := plugins.DefaultChoice()
	for _, at := range plugins.Points() {
		if slices.Equal(p.Plugins.At[at], d.At[at]) {
			continue
		}
		line := at.String() + "s:"
		for _, x := range p.Plugins.At[at] {
			line += " " + x.Name
			if at == plugins.Score {
				line += fmt.Sprintf("*%d", x.Weight)
			}
		}
		out = append(out, line)
	}
	return out
}

func TestDefaultsAreUpstreams(t *testing.T) {
	c := Default()
	if len(c.Profiles) != 1 || c.Profiles[0].Name != "default-scheduler" || c.Profiles[0].PercentageOfNodesToScore != 0 {
		t.Errorf("profiles: got %+v", c.Profiles)
	}
	if c.PodInitialBackoff != time.Second || c.PodMaxBackoff != 10*time.Second {
		t.Errorf("back-off: got %v to %v, want 1s to 10s", c.PodInitialBackoff, c.PodMaxBackoff)
	}
	l := c.LeaderElection
	if l.Off || l.LeaseDuration != 15*time.Second || l.RenewDeadline != 10*time.Second || l.RetryPeriod != 2*time.Second ||
		l.Lock != "leases" || l.Namespace != "kube-system" || !slices.Equal(l.Names, []string{"kube-scheduler"}) {
		t.Errorf("leader election: got %+v", l)
	}
	if c.Parallelism != 16 || len(c.Idle) > 0 {
		t.Errorf("got parallelism %d and %v", c.Parallelism, c.Idle)
	}
	if got, want := c.Profiles[0].Plugins.At, plugins.DefaultChoice().At; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("plugins: got %v, want %v", got, want)
	}
}

func TestTakesTheDocumentsDefaultConstraints(t *testing.T) {
	data, err := os.ReadFile("../../../docs/requirements/manifests/4.1.5-default-constraints-reconstructed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v1alpha2"} {
		text := strings.Replace(string(data), "kubescheduler.config.k8s.io/v1\n", "kubescheduler.config.k8s.io/"+version+"\n", 1)
		if version == "v1alpha2" { // which did not have it
			text = strings.Replace(text, "      defaultingType: List\n", "", 1)
		}
		c, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		trace.Proves(t, "TSC-028")
		args := c.Profiles[0].Plugins.PodTopologySpread
		if args.DefaultingType != "List" || len(args.DefaultConstraints) != 1 || args.DefaultConstraints[0].TopologyKey != "topology.kubernetes.io/zone" {
			t.Errorf("%s: got %+v, want the file's constraint", version, args)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {score: {disabled: [{name: '*'}]}}}]")
	f.Add("apiVersion: kubescheduler.config.k8s.io/v1alpha2\nkind: KubeSchedulerConfiguration\nprofiles: [{pluginConfig: [{name: VolumeBinding, args: {}}]}]\nbindTimeoutSeconds: 5")
	f.Fuzz(func(t *testing.T, doc string) {
		c, err := Parse([]byte(doc))
		if err == nil && len(c.Profiles) == 0 {
			t.Errorf("no profile in %q", doc)
		}
		if err == nil {
			for _, p := range c.Profiles {
				plugins.NewSet(p.Plugins)
			}
		}
	})
}
