package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/legacy"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// calling is a server that notes calls, and runs that until stop is called.
func calling(t *testing.T, st store.Store) (f *fixture, calls *legacy.Calls, stop func()) {
	t.Helper()
	calls = legacy.New("one", slog.New(slog.DiscardHandler))
	f = newFixture(t, func(o *Options) {
		o.Store, o.Legacy = st, calls
		o.RuntimeConfig = map[string]bool{"extensions/v1beta1": false}
	})
	g := task.NewGroup(t.Context())
	g.Go("legacy calls", func(ctx context.Context) error { return calls.Run(ctx, f.As(admin, "test")) })
	return f, calls, func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// shown are calls in short.
func shown(list []legacy.Call) (lines []string) {
	for _, c := range list {
		lines = append(lines, fmt.Sprintf("%s/%s %s/%s %s by %s %s from %s, off %v: %d", c.Group, c.Version, c.Resource, c.Subresource, c.Removed, c.User, c.Agent, c.Address, c.Off, c.Count))
	}
	slices.Sort(lines)
	return lines
}

func TestWhoCallsDeprecatedVersionsIsKnownOverRestarts(t *testing.T) {
	st := newStore(t)
	f, calls, stop := calling(t, st)
	if _, err := client.For(f.As(admin, "test"), core.Namespaces).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}); err != nil {
		t.Fatal(err)
	}
	kept := func() []legacy.Call {
		t.Helper()
		maps, err := client.For(f.As(admin, "test"), core.ConfigMaps).List(t.Context(), metav1.NamespaceSystem, metav1.ListOptions{LabelSelector: legacy.Label})
		if err != nil || len(maps) > 1 {
			t.Fatalf("got %d, %v", len(maps), err)
		}
		if len(maps) == 0 {
			return nil
		}
		list, err := legacy.Parse(maps[0].Data)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(list, func(a, b legacy.Call) int { return strings.Compare(a.Group, b.Group) })
		return list
	}
	f.must(http.StatusOK, "GET", "/apis/batch/v1/cronjobs", "")
	f.must(http.StatusNotFound, "GET", "/apis/batch/v0/cronjobs", "")
	if list := calls.List(); len(list) > 0 {
		t.Fatalf("got %v, want nothing noted of today's versions, and of what never was", shown(list))
	}
	f.must(http.StatusOK, "GET", "/apis/batch/v1beta1/cronjobs", "", "User-Agent: old-operator/1")
	f.must(http.StatusOK, "GET", "/apis/batch/v1beta1/namespaces/default/cronjobs", "", "User-Agent: old-operator/1")
	f.must(http.StatusNotFound, "GET", "/apis/extensions/v1beta1/namespaces/default/ingresses/a", "", "User-Agent: "+strings.Repeat("x", 1000))
	stop() // what was noted is written
	want := []string{
		"batch/v1beta1 cronjobs/ 1.25 by admin old-operator/1 from 192.0.2.1, off false: 2",
		"extensions/v1beta1 ingresses/ 1.22 by admin " + strings.Repeat("x", 200) + " from 192.0.2.1, off true: 1",
	}
	first := kept()
	for _, got := range [][]string{shown(calls.List()), shown(first)} {
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %s, want %s", got, want)
		}
	}

	f, calls, stop = calling(t, st)
	f.must(http.StatusOK, "GET", "/apis/batch/v1beta1/cronjobs", "", "User-Agent: old-operator/1")
	stop()
	again := kept()
	want[0] = strings.Replace(want[0], ": 2", ": 3", 1)
	if got := shown(again); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("after a restart: got %s, want %s", got, want)
	}
	if len(again) != 2 || !again[0].First.Equal(first[0].First) || again[0].Last.Before(first[0].Last) {
		t.Errorf("after a restart: got %+v, want the first call as before: %+v", again, first)
	}

	// Who makes agents up does not fill the memory.
	for i := range 600 {
		f.must(http.StatusOK, "GET", "/apis/batch/v1beta1/cronjobs", "", fmt.Sprint("User-Agent: made-up/", i))
	}
	if n := len(calls.List()); n != 500 {
		t.Errorf("got %d callers, want 500", n)
	}
}
