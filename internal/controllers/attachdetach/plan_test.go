package attachdetach

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/texttest"
)

// TestNextSteps runs the blocks of testdata/plan: each describes a volume on its nodes, and what
// is said then is to be done.
//
//	volume [exclusive] [unneeded] [patient]
//	node NAME [wanted] [asked|done|leaving] [foreign] [used] [silenced] [broken] [unwanted=D] [silent=D] [news] [awaited] [told]
//
// A node is foreign if it attaches volumes itself or is not there, silenced if it is not ready, and broken if it is out of service.
func TestNextSteps(t *testing.T) {
	texttest.Run(t, "testdata/plan/*.txt", func(t *testing.T, _, text string) string {
		var out strings.Builder
		for block := range strings.SplitSeq(text, "\n\n") {
			var v *volume
			for line := range strings.Lines(block) {
				words := strings.Fields(line)
				if len(words) == 0 || words[0] == "->" {
					continue
				}
				out.WriteString(strings.TrimRight(line, "\n") + "\n")
				switch words[0] {
				case "#":
				case "volume":
					v = readVolume(t, words[1:])
				case "node":
					v.places = append(v.places, readNode(t, words[1], words[2:]))
				default:
					t.Fatalf("what is %q?", line)
				}
			}
			if v != nil {
				out.WriteString("-> " + show(v.next()) + "\n\n")
			}
		}
		return strings.TrimRight(out.String(), "\n") + "\n"
	})
}

func readVolume(t *testing.T, words []string) *volume {
	v := &volume{}
	for _, w := range words {
		switch w {
		case "exclusive":
			v.exclusive = true
		case "unneeded":
			v.unneeded = true
		case "patient":
			v.patient = true
		default:
			t.Fatalf("what is %q?", w)
		}
	}
	return v
}

func readNode(t *testing.T, name string, words []string) place {
	p := place{node: name, managed: true, ready: true}
	for _, w := range words {
		key, value, timed := strings.Cut(w, "=")
		d, err := time.ParseDuration(value)
		if timed && err != nil {
			t.Fatal(err)
		}
		switch key {
		case "wanted":
			p.wanted = true
		case "asked":
			p.phase = asked
		case "done":
			p.phase = done
		case "leaving":
			p.phase = leaving
		case "foreign":
			p.managed = false
		case "used":
			p.inUse = true
		case "silenced":
			p.ready = false
		case "broken":
			p.outOfService = true
		case "unwanted":
			p.unwanted = d
		case "silent":
			p.silent = d
		case "news":
			p.news = "it does not fit"
		case "awaited":
			p.awaited = true
		case "told":
			p.told = true
		default:
			t.Fatalf("what is %q?", w)
		}
	}
	return p
}

var acts = map[act]string{
	attach: "attach to", detach: "detach from", detachLost: "detach from lost", detachBroken: "detach from broken", tellAttached: "tell attached to",
	tellFailed: "tell failure on", tellSilent: "tell silence on", tellLeaving: "tell still leaving", tellElsewhere: "tell elsewhere to",
}

func show(steps []step, again time.Duration) string {
	var words []string
	for _, s := range steps {
		words = append(words, acts[s.act]+" "+s.node)
	}
	if again > 0 {
		words = append(words, "look again in "+again.String())
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// TestUsersElsewhereAreNamedInTheirNamespaceOnly: who reads events of a namespace learns
// nothing of the pods of others.
func TestUsersElsewhereAreNamedInTheirNamespaceOnly(t *testing.T) {
	for _, c := range []struct{ namespaces, want string }{
		{"", "Volume is already exclusively attached to one node and can't be attached to another"},
		{"a", "Volume is already used by pod(s) p0"},
		{"a a", "Volume is already used by pod(s) p0, p1"},
		{"a b b", "Volume is already used by pod(s) p0 and 2 pod(s) in different namespaces"},
		{"b", "Volume is already used by 1 pod(s) in different namespaces"},
	} {
		if got := elsewhere("a", podsOf(c.namespaces)); got != c.want {
			t.Errorf("pods in %q: got %q, want %q", c.namespaces, got, c.want)
		}
	}
}

func podsOf(namespaces string) (pods []*corev1.Pod) {
	for i, namespace := range strings.Fields(namespaces) {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("p", i)}})
	}
	return pods
}
