package apiserver

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kemudi/kemudi/test/wait"
)

// TestWatchesThatTheirConnectionSendsKeepLittleStack: what it took to begin them has returned. All
// that is due at the end of a request is done when they end, and not before.
func TestWatchesThatTheirConnectionSendsKeepLittleStack(t *testing.T) { // not beside others, which have stacks too
	const watches, most = 200, 10 << 10
	f := newFixture(t, crowd(nil))
	conn := dial(t, f.serveTLS(), true)
	if err := conn.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	const path = mapsPath + "?watch=1&resourceVersion=0"
	framer := get2(t, conn, path, 1<<20)
	begun := func(n int) {
		t.Helper()
		for n > 0 {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := frame.(*http2.HeadersFrame); ok {
				n--
			}
		}
	}
	begun(1)
	before := stacks()
	for i := range watches {
		ask2(t, framer, uint32(2*i+3), path)
	}
	begun(watches)
	if each := (stacks() - before) / watches; each > most {
		t.Errorf("got stacks of %d bytes for each watch, want %d at most", each, most)
	}
	const (
		open  = `apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"} `
		ended = `apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"} `
	)
	if shown := f.must(200, "GET", "/metrics", ""); !strings.Contains(shown, open+"201\n") || strings.Contains(shown, ended) {
		t.Errorf("got %s, want 201 watches that have not ended", shown)
	}
	conn.Close()
	wait.Until(t, func() error {
		if shown := f.must(200, "GET", "/metrics", ""); !strings.Contains(shown, open+"0\n") || !strings.Contains(shown, ended+"201\n") {
			return errors.New("201 watches have not ended")
		}
		return nil
	})
}

// stacks is how many bytes of stacks there are when those that are larger than they need be have been
// halved, as each collection does, some times.
func stacks() int64 {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse)
}
