package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kemudi/kemudi/internal/trace"
)

// refused lists the sample objects that the server must not take, and what it
// must say of them.
var refused = map[string]string{
	"4.1.5-default-constraints-reconstructed.yaml": "no matches for kind",              // a file for the scheduler
	"5.1-service-loadbalancer.yaml":                "spec.clusterIPs: Invalid value: ", // of another cluster's range
	"5.10-dual-stack-ipv6-svc.yaml":                `spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`,
	"5.6-ingress-tls-secret.yaml":                  "illegal base64 data at input byte 6",
	"7-ex7-strategy-merged-invalid.yaml":           "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
	"7-ex8-controller-selector.yaml":               "spec.selector.matchLabels: Invalid value: ",
}

// unserved is the answer to objects of kinds that are not served yet: their
// samples are skipped.
const unserved = "no matches for kind"

// shows lists the requirements that are about a sample being taken.
var shows = map[string]string{
	"1.4.5-pod-two-labels-reconstructed.yaml":                  "LBL-016",
	"4.2.4-web-statefulset.yaml":                               "STS-010",
	"4.2.5-fluentd-elasticsearch-daemonset-reconstructed.yaml": "DS-007",
	"6.1-aws-ebs-pod.yaml":                                     "EBS-009",
	"6.1-cinder-pod.yaml":                                      "CIND-005",
	"7-ex7-strategy-merged-invalid.yaml":                       "DEF-017",
	"7-ex8-controller-selector.yaml":                           "SEL-K01",
}

// needs lists what a sample object does not work without.
var needs = map[string]string{"3.4-pod-with-runtimeclass-reconstructed.yaml": "3.4-runtimeclass-myclass.yaml"}

// ownNamespace matches the namespace of an object: each sample gets one of its own.
var ownNamespace = regexp.MustCompile(`(?m)^  namespace: .*\n`)

// TestSampleObjects applies every whole object of the catalogue three ways: in a
// dry run, in earnest, and again, when nothing may change.
func TestSampleObjects(t *testing.T) {
	files, err := filepath.Glob("../../docs/requirements/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sample objects: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		// Fragments have no kind. The node is for a transcript, which counts nodes.
		if !regexp.MustCompile(`(?m)^apiVersion: `).Match(data) || strings.HasPrefix(name, "2.1-node") {
			continue
		}
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			t.Parallel()
			if id := shows[name]; id != "" {
				trace.Proves(t, id)
			}
			applySample(t, name, string(ownNamespace.ReplaceAll(data, nil)))
		})
	}
}

func applySample(t *testing.T, name, data string) {
	namespace := "sample-" + regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.TrimSuffix(name, ".yaml"), "-")
	tr := newTranscript(t, namespace[:min(len(namespace), 60)]+"x", []txtar.File{{Name: "sample.yaml", Data: []byte(data)}})
	apply := func(args string) string { return strings.Join(tr.run("kubectl apply "+args), "\n") }
	if before := needs[name]; before != "" {
		apply("-f manifests/" + before)
	}
	got := apply("--dry-run=server -f sample.yaml")
	if want := refused[name]; want != "" {
		if !strings.Contains(got, want) || !strings.Contains(got, "[exit 1]") {
			t.Errorf("got %s\nwant a refusal with %s", got, want)
		}
		return
	}
	if strings.Contains(got, unserved) {
		t.Skip(got)
	}
	for _, step := range []struct{ args, verb string }{
		{"--dry-run=server -f sample.yaml", `(created|unchanged) \(server dry run\)`},
		{"-f sample.yaml", `(created|unchanged)`},
	} {
		got := slices.DeleteFunc(tr.run("kubectl apply "+step.args), func(line string) bool { return strings.HasPrefix(line, "Warning: ") || line == "" })
		for _, line := range got {
			if !regexp.MustCompile(`^\S+/\S+ ` + step.verb + `$`).MatchString(line) {
				t.Errorf("kubectl apply %s: got %s\nwant only lines that end with %s", step.args, strings.Join(got, "\n"), step.verb)
				return
			}
		}
	}
	// Some files differ from what they make for ever, such as "1" from 1: kubectl
	// then sends a patch each time, which must not change a thing.
	before := tr.versions()
	if got := apply("-f sample.yaml"); strings.Contains(got, "[exit") {
		t.Errorf("apply again: %s", got)
	}
	if after := tr.versions(); after != before {
		t.Errorf("generations or revisions after the same file again: got %s, want %s", after, before)
	}
}

// versions are the generations of the sample's objects; of those that have
// none, their revisions, as nobody else writes them.
func (tr *transcript) versions() string {
	lines := tr.run("kubectl get -f sample.yaml --no-headers -o custom-columns=G:.metadata.generation,R:.metadata.resourceVersion")
	for i, line := range lines {
		if generation, _, _ := strings.Cut(line, " "); generation != "<none>" {
			lines[i] = generation
		}
	}
	return strings.Join(lines, " ")
}
