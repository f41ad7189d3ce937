package nodeipam_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
)

// record is a log that may be read while it is written.
type record struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.Buffer.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.Buffer.String()
}

func TestNodesBeyondTheAddressesSaySoOnceAndWaitForAnotherToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &record{}
		plane := sim.Plane(t, plane.Options{
			Network: plane.Network{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/23")}},
			Logger:  slog.New(slog.NewTextHandler(log, nil)),
		})
		nodes := client.For(plane.Admin(), core.Nodes)
		shares := func() string {
			t.Helper()
			list, err := nodes.List(t.Context(), "", metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, n := range list {
				fmt.Fprintf(&b, "%s=%s ", n.Name, n.Spec.PodCIDR)
			}
			return b.String()
		}
		for i := range 4 {
			if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got, want := shares(), "n0=10.244.0.0/24 n1=10.244.1.0/24 n2= n3= "; got != want {
			t.Fatalf("got shares %s, want %s", got, want)
		}
		for i := range 20 { // an agent says how its node is, again and again
			patch := client.Patch{Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"metadata":{"annotations":{"i":"%d"}}}`, i)}
			if _, err := nodes.Patch(t.Context(), "", "n2", "", patch); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if got := log.String(); strings.Contains(got, "level=ERROR") || strings.Count(got, "node=n2") != 1 || strings.Count(got, "node=n3") != 1 {
			t.Errorf("got log\n%s\nwant one line of each of n2 and n3, and no error", got)
		}
		events, err := client.For(plane.Admin(), core.Events).List(t.Context(), "", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]int{}
		for _, e := range events {
			if e.Reason == "CIDRNotAvailable" {
				said[e.InvolvedObject.Name+": "+e.Message] += max(int(e.Count), 1)
			}
		}
		if len(said) != 2 || said["n2: Node n2 status is now: CIDRNotAvailable"] != 1 || said["n3: Node n3 status is now: CIDRNotAvailable"] != 1 {
			t.Errorf("got events %v, want one of each of n2 and n3", said)
		}
		if err := nodes.Delete(t.Context(), "", "n0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got := shares()
		if strings.Count(got, "=10.244.0.0/24 ") != 1 || strings.Count(got, "=10.244.1.0/24 ") != 1 {
			t.Errorf("got shares %s, want the freed one given to one of those that waited", got)
		}
	})
}
