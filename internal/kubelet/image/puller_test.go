package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/trace"
)

// node is a puller with the events it reported.
type node struct {
	*Puller
	events []string
	pulls  int
	err    error // of every pull
	cri    *fakecri.Runtime
}

func newNode() *node {
	n := &node{}
	n.cri = fakecri.New(fakecri.Options{Pull: func(context.Context, string) error { n.pulls++; return n.err }})
	n.Puller = NewPuller(n.cri, Config{}, nil, nil)
	return n
}

func (n *node) ensure(t *testing.T, image string, policy v1.PullPolicy) Result {
	t.Helper()
	r, err := n.Ensure(t.Context(), Request{Pod: "u1", Image: image, Policy: policy, Event: func(kind, reason, message string) {
		n.events = append(n.events, kind+" "+reason+": "+message)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (n *node) reported(t *testing.T, want ...string) {
	t.Helper()
	got := strings.Join(n.events, "\n")
	if got != strings.Join(want, "\n") {
		t.Errorf("events: got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	n.events = nil
}

func TestPolicyDecidesWhetherToPull(t *testing.T) {
	trace.Proves(t, "IMG-004", "IMG-005", "IMG-009", "IMG-010", "IMG-011")
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		if r := n.ensure(t, "a", v1.PullNever); r.Reason != "ErrImageNeverPull" || r.Message != `Container image "a" is not present with pull policy of Never` {
			t.Errorf("never, absent: got %+v", r)
		}
		n.reported(t, `Warning ErrImageNeverPull: Container image "a" is not present with pull policy of Never`, "Warning Failed: Error: ErrImageNeverPull")
		for i, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullIfNotPresent, v1.PullNever, v1.PullAlways} {
			if r := n.ensure(t, "a", policy); r.Ref != "sha256:a:latest" {
				t.Errorf("%d %s: got %+v", i, policy, r)
			}
		}
		if n.pulls != 2 {
			t.Errorf("pulls: got %d, want 2", n.pulls)
		}
		pulled := `Normal Pulled: Successfully pulled image "a" in 0s (0s including waiting). Image size: 1048576 bytes.`
		n.reported(t, `Normal Pulling: Pulling image "a"`, pulled, `Normal Pulled: Container image "a" already present on machine and can be accessed by the pod`,
			`Normal Pulled: Container image "a" already present on machine and can be accessed by the pod`, `Normal Pulling: Pulling image "a"`, pulled)
	})
}

func TestFailedPullsBackOff(t *testing.T) {
	trace.Proves(t, "IMG-048")
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.err = errors.New("no such image")
		want := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}
		for _, wait := range want {
			if r := n.ensure(t, "a:1", v1.PullIfNotPresent); r.Reason != "ErrImagePull" || r.Message != "no such image" {
				t.Fatalf("got %+v", r)
			}
			n.reported(t, `Normal Pulling: Pulling image "a:1"`, `Warning Failed: Failed to pull image "a:1": no such image`, "Warning Failed: Error: ErrImagePull")
			time.Sleep(failureShown)
			r := n.ensure(t, "a:1", v1.PullIfNotPresent)
			if r.Reason != "ImagePullBackOff" || r.Message != `Back-off pulling image "a:1": ErrImagePull: no such image` || time.Until(r.Retry) != wait-failureShown {
				t.Fatalf("got %+v, retry in %s, want in %s", r, time.Until(r.Retry), wait-failureShown)
			}
			n.reported(t, `Normal BackOff: Back-off pulling image "a:1"`, "Warning Failed: Error: ImagePullBackOff")
			time.Sleep(time.Until(r.Retry))
		}
		n.err = nil
		if r := n.ensure(t, "a:1", v1.PullIfNotPresent); r.Ref == "" {
			t.Errorf("after the failure is gone: got %+v", r)
		}
		n.err = errors.New("again")
		n.ensure(t, "a:1", v1.PullAlways)
		time.Sleep(failureShown)
		if r := n.ensure(t, "a:1", v1.PullAlways); time.Until(r.Retry) != 10*time.Second-failureShown {
			t.Errorf("a success starts the back-off anew: got retry in %s", time.Until(r.Retry))
		}
	})
}

func TestBadNamesAreTold(t *testing.T) {
	n := newNode()
	for _, name := range []string{"UPPER", "a b", "", "x:y:z", "http://a"} {
		r := n.ensure(t, name, v1.PullAlways)
		if r.Reason != "InvalidImageName" || !strings.HasPrefix(r.Message, fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: ", name, name)) {
			t.Errorf("%q: got %+v", name, r)
		}
		n.reported(t, "Warning InspectFailed: "+r.Message, "Warning Failed: Error: InvalidImageName")
	}
}

func TestFailuresOfTheRegistryAndOfSignaturesHaveReasonsOfTheirOwn(t *testing.T) {
	for _, tc := range []struct {
		err             error
		reason, message string
	}{
		{status.Error(codes.Unavailable, "it is down"), "RegistryUnavailable", "image pull failed for a:1 because the registry is unavailable: it is down"},
		{status.Error(codes.Unknown, "RegistryUnavailable: it is down"), "RegistryUnavailable", "image pull failed for a:1 because the registry is unavailable: it is down"},
		{status.Error(codes.Unknown, "SignatureValidationFailed: not ours"), "SignatureValidationFailed", "image pull failed for a:1 because the signature validation failed: not ours"},
		{status.Error(codes.NotFound, "a:1: not found"), "ErrImagePull", "rpc error: code = NotFound desc = a:1: not found"},
	} {
		n := newNode()
		n.err = tc.err
		if r := n.ensure(t, "a:1", v1.PullAlways); r.Reason != tc.reason || r.Message != tc.message {
			t.Errorf("%v: got %+v, want %s: %s", tc.err, r, tc.reason, tc.message)
		}
	}
}

func TestPullsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var under, most int
		n.cri = fakecri.New(fakecri.Options{Pull: func(context.Context, string) error {
			under++
			most = max(most, under)
			time.Sleep(time.Second)
			under--
			return nil
		}})
		n.Puller = NewPuller(n.cri, Config{MaxPulls: 1}, nil, nil)
		var pulls sync.WaitGroup
		var waited string
		for i := range 3 {
			pulls.Go(func() {
				_, _ = n.Ensure(t.Context(), Request{Pod: "u1", Image: fmt.Sprintf("a:%d", i), Policy: v1.PullAlways, Event: func(_, reason, message string) {
					if reason == "Pulled" {
						waited = message
					}
				}})
			})
		}
		pulls.Wait()
		if most != 1 || !strings.Contains(waited, " in 1s (3s including waiting). Image size: 1048576 bytes.") {
			t.Errorf("got %d at a time, want 1; the last: %s", most, waited)
		}
	})
}
