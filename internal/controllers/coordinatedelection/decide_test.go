package coordinatedelection

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/texttest"
)

// TestElectionsGoOnStepByStep runs the blocks of testdata/step: each describes a lease and who stands for it, and what is
// said then is to be done.
//
//	lease [holder=NAME] [renewed=AGO] [lasts=SECONDS] [preferred=NAME] [strategy=NAME]
//	candidate NAME EMULATED BINARY [renewed=AGO] [asked=AGO] [made=AGO] [strategy=NAME]
//
// Without lease there is none. A candidate that says nothing else has renewed just now, and stands since then.
func TestElectionsGoOnStepByStep(t *testing.T) {
	texttest.Run(t, "testdata/step/*.txt", func(t *testing.T, _, text string) string {
		var out strings.Builder
		for block := range strings.SplitSeq(text, "\n\n") {
			var l *lease
			var candidates []*candidate
			for line := range strings.Lines(block) {
				words := strings.Fields(line)
				if len(words) == 0 || words[0] == "->" {
					continue
				}
				out.WriteString(strings.TrimRight(line, "\n") + "\n")
				switch words[0] {
				case "#":
				case "lease":
					l = readLease(t, words[1:])
				case "candidate":
					candidates = append(candidates, readCandidate(t, words[1:]))
				default:
					t.Fatalf("what is %q?", line)
				}
			}
			p, err := decide(now, metav1.ObjectMeta{Namespace: "kube-system", Name: "lock"}, l, candidates)
			if l != nil || candidates != nil {
				out.WriteString(show(p, err))
			}
			out.WriteString("\n")
		}
		return strings.TrimRight(out.String(), "\n") + "\n"
	})
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ago(t *testing.T, text string) metav1.MicroTime {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return metav1.NewMicroTime(now.Add(-d))
}

func readLease(t *testing.T, words []string) *lease {
	t.Helper()
	l := &lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](15)}}
	for _, w := range words {
		switch name, value, _ := strings.Cut(w, "="); name {
		case "holder":
			l.Spec.HolderIdentity = &value
		case "preferred":
			l.Spec.PreferredHolder = &value
		case "strategy":
			l.Spec.Strategy = ptr.To(coordinationv1.CoordinatedLeaseStrategy(value))
		case "renewed":
			l.Spec.RenewTime = ptr.To(ago(t, value))
			l.Spec.AcquireTime = l.Spec.RenewTime
		case "lasts":
			fmt.Sscan(value, l.Spec.LeaseDurationSeconds)
		default:
			t.Fatalf("what is %q?", w)
		}
	}
	return l
}

func readCandidate(t *testing.T, words []string) *candidate {
	t.Helper()
	c := &candidate{ObjectMeta: metav1.ObjectMeta{Name: words[0]}}
	c.Spec.EmulationVersion, c.Spec.BinaryVersion, c.Spec.Strategy = words[1], words[2], coordinationv1.OldestEmulationVersion
	c.Spec.RenewTime, c.CreationTimestamp = ptr.To(ago(t, "0s")), metav1.NewTime(now)
	for _, w := range words[3:] {
		switch name, value, _ := strings.Cut(w, "="); name {
		case "renewed":
			if c.Spec.RenewTime = nil; value != "never" {
				c.Spec.RenewTime = ptr.To(ago(t, value))
			}
		case "asked":
			c.Spec.PingTime = ptr.To(ago(t, value))
		case "made":
			c.CreationTimestamp = metav1.NewTime(ago(t, value).Time)
		case "strategy":
			c.Spec.Strategy = coordinationv1.CoordinatedLeaseStrategy(value)
		default:
			t.Fatalf("what is %q?", w)
		}
	}
	return c
}

func show(p plan, err error) string {
	var out strings.Builder
	for _, c := range p.gone {
		fmt.Fprintf(&out, "-> delete %s\n", c.Name)
	}
	for _, c := range p.ask {
		fmt.Fprintf(&out, "-> ask %s\n", c.Name)
	}
	if l := p.write; l != nil {
		verb := "update"
		if l.ResourceVersion == "" {
			verb = "create " + l.Namespace + "/" + l.Name
		}
		s := &l.Spec
		fmt.Fprintf(&out, "-> %s: holder %q, preferred %q, strategy %q, lasts %d, renewed %v ago, acquired %v\n", verb, ptr.Deref(s.HolderIdentity, ""),
			ptr.Deref(s.PreferredHolder, ""), ptr.Deref(s.Strategy, ""), ptr.Deref(s.LeaseDurationSeconds, 0), now.Sub(s.RenewTime.Time), s.AcquireTime != nil)
	}
	if err != nil {
		fmt.Fprintf(&out, "-> error: %v\n", err)
	}
	fmt.Fprintf(&out, "-> again in %v\n", p.again)
	return out.String()
}
