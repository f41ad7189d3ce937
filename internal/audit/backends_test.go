package audit

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// collector keeps the batches that it is told.
type collector struct {
	mu      sync.Mutex
	batches [][]*auditv1.Event
	hold    chan struct{} // if not nil: what process waits for
	fail    bool
}

func (c *collector) process(events []*auditv1.Event) bool {
	if c.hold != nil {
		<-c.hold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, events)
	return !c.fail
}

// sizes are those of the batches.
func (c *collector) sizes() (list []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.batches {
		list = append(list, len(b))
	}
	return list
}

func same(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func events(n int) (list []*auditv1.Event) {
	for range n {
		list = append(list, sample())
	}
	return list
}

// inBatches runs f with batches before a collector, in virtual time.
func inBatches(t *testing.T, o BatchOptions, aside int, f func(b *batches, c *collector, end func())) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		b := newBatches(c, o, newTelling())
		b.aside = aside
		g := task.NewGroup(t.Context())
		g.Go("batches", b.run)
		f(b, c, func() {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestBatchIsToldWhenItIsFullOrOld(t *testing.T) {
	inBatches(t, BatchOptions{BufferSize: 100, MaxSize: 4, MaxWait: 30 * time.Second}, 1, func(b *batches, c *collector, end func()) {
		b.process(events(9))
		synctest.Wait()
		if got := c.sizes(); !same(got, []int{4, 4}) {
			t.Errorf("at once: got %v, want two full batches", got)
		}
		time.Sleep(29 * time.Second)
		b.process(events(1))
		synctest.Wait()
		if got := c.sizes(); len(got) != 2 {
			t.Errorf("before its time: got %v", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := c.sizes(); !same(got, []int{4, 4, 2}) {
			t.Errorf("in time: got %v, want what there is", got)
		}
		b.process(events(6))
		end()
		if got := c.sizes(); !same(got, []int{4, 4, 2, 4, 2}) {
			t.Errorf("at the end: got %v, want all", got)
		}
		if b.process(events(3)); b.told.lostBy("buffered") != 3 {
			t.Errorf("after the end: got %d lost, want 3", b.told.lostBy("buffered"))
		}
	})
}

func TestEventsThatFindNoRoomAreLostAndCounted(t *testing.T) {
	inBatches(t, BatchOptions{BufferSize: 5, MaxSize: 1}, 0, func(b *batches, c *collector, end func()) {
		c.hold = make(chan struct{})
		b.process(events(1))
		synctest.Wait() // on its way
		if !b.process(events(8)) || b.told.lostBy("buffered") != 3 {
			t.Errorf("got %d lost, want 3 of 8, and no failure", b.told.lostBy("buffered"))
		}
		close(c.hold)
		end()
		if got := c.sizes(); !same(got, []int{1, 1, 1, 1, 1, 1}) {
			t.Errorf("got %v, want six events", got)
		}
	})
}

func TestBatchesAreThrottled(t *testing.T) {
	o := BatchOptions{BufferSize: 100, MaxSize: 1, ThrottleEnable: true, ThrottleQPS: 2, ThrottleBurst: 3}
	inBatches(t, o, 4, func(b *batches, c *collector, end func()) {
		b.process(events(8))
		synctest.Wait()
		if got := len(c.sizes()); got != 3 {
			t.Errorf("at once: got %d batches, want 3", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := len(c.sizes()); got != 5 {
			t.Errorf("a second later: got %d batches, want 5", got)
		}
		end()
		if got := len(c.sizes()); got != 8 {
			t.Errorf("at the end: got %d batches, want all 8", got)
		}
	})
}

func TestSlowBackendHoldsAsManyBatchesAsMayBeOnTheirWay(t *testing.T) {
	inBatches(t, BatchOptions{BufferSize: 4, MaxSize: 1}, 2, func(b *batches, c *collector, end func()) {
		c.hold = make(chan struct{})
		for range 20 {
			b.process(events(1))
			synctest.Wait()
		}
		// Two batches on their way, one in the hand, and a full queue.
		if got := b.told.lostBy("buffered"); got != 20-2-1-4 {
			t.Errorf("got %d lost of 20, want 13", got)
		}
		close(c.hold)
		end()
	})
}

func TestLargeEventsAreTruncatedOrLost(t *testing.T) {
	c, told := &collector{}, newTelling()
	small, err := sizeOf(sample())
	if err != nil {
		t.Fatal(err)
	}
	b := truncated(c, TruncateOptions{Enabled: true, MaxEventSize: small + 100, MaxBatchSize: 2*small + 200}, told)
	large, hopeless := sample(), sample()
	large.ResponseObject = &runtime.Unknown{Raw: []byte(`"` + strings.Repeat("x", 1000) + `"`), ContentType: runtime.ContentTypeJSON}
	hopeless.RequestURI = strings.Repeat("x", 1000)
	if !b.process([]*auditv1.Event{sample(), large, hopeless, sample(), sample()}) {
		t.Error("got a failure")
	}
	if got := c.sizes(); !same(got, []int{2, 2}) || told.lostBy("truncate") != 1 {
		t.Errorf("got batches %v and %d lost, want 2, 2 and 1", got, told.lostBy("truncate"))
	}
	cut := c.batches[0][1]
	if cut.ResponseObject != nil || cut.RequestObject != nil || cut.Annotations["audit.k8s.io/truncated"] != "true" || cut.Annotations["k"] != "v" {
		t.Errorf("got %+v, want it without objects, and told so", cut)
	}
	if large.ResponseObject == nil || len(large.Annotations) != 1 {
		t.Error("the event itself was changed")
	}
	if got := truncated(c, TruncateOptions{}, told); got != backend(c) {
		t.Error("nothing was asked for")
	}
}

// hookServer is a webhook; answer says what becomes of the n-th post.
func hookServer(t *testing.T, answer func(n int, w http.ResponseWriter)) (kubeconfig string, got func() []auditv1.EventList) {
	t.Helper()
	var mu sync.Mutex
	var lists []auditv1.EventList
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil || r.Method != http.MethodPost || r.URL.Path != "/sink" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s %s, %v, %v", r.Method, r.URL, r.Header, err)
		}
		n++
		answer(n, w)
		lists = append(lists, list)
	}))
	t.Cleanup(srv.Close)
	kubeconfig = textFile(t, `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "`+srv.URL+`/sink"}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x, users: [{name: u, user: {token: secret}}]}`)
	return kubeconfig, func() []auditv1.EventList {
		mu.Lock()
		defer mu.Unlock()
		return lists
	}
}

// running is a log with a webhook that runs until the test's end.
func running(t *testing.T, o Options) (l *Log, stop func()) {
	t.Helper()
	o.PolicyFile = textFile(t, policyHead+"rules: [{level: Metadata}]")
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("audit", l.Run)
	stop = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return l, stop
}

func TestWebhookIsAskedAgain(t *testing.T) {
	config, lists := hookServer(t, func(n int, w http.ResponseWriter) {
		if n < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	o := Defaults()
	o.Webhook.ConfigFile, o.Webhook.Mode, o.Webhook.InitialBackoff = config, BlockingStrict, time.Millisecond
	l, _ := running(t, o)
	if !l.tell(sample()) {
		t.Error("got a failure, want the third post to be good")
	}
	got := lists()
	if len(got) != 3 || len(got[2].Items) != 1 || got[2].Kind != "EventList" || got[2].Items[0].AuditID != "id-1" || got[2].Items[0].Kind != "" {
		t.Errorf("got %+v", got)
	}
}

func TestWebhookThatIsGoneLosesEvents(t *testing.T) {
	config, lists := hookServer(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) })
	for mode, want := range map[string]bool{Blocking: true, BlockingStrict: false} {
		before := len(lists())
		o := Defaults()
		o.Webhook.ConfigFile, o.Webhook.Mode, o.Webhook.InitialBackoff = config, mode, time.Millisecond
		l, stop := running(t, o)
		if got := l.tell(sample()); got != want || l.told.lostBy("webhook") != 1 {
			t.Errorf("%s: got %t and %d lost, want %t and 1", mode, got, l.told.lostBy("webhook"), want)
		}
		if got := len(lists()) - before; got != tries {
			t.Errorf("%s: got %d tries, want %d", mode, got, tries)
		}
		stop()
		if got := l.tell(sample()); got != want || l.told.lostBy("webhook") != 2 {
			t.Errorf("%s: after the end: got %t and %d lost, want %t and 2", mode, got, l.told.lostBy("webhook"), want)
		}
	}
}

func TestWebhookGetsWhatWaitsWhenTheServerEnds(t *testing.T) {
	config, lists := hookServer(t, func(int, http.ResponseWriter) {})
	o := Defaults()
	o.Webhook.ConfigFile = config
	l, stop := running(t, o)
	for range 5 {
		l.tell(sample())
	}
	stop()
	if got := lists(); len(got) != 1 || len(got[0].Items) != 5 {
		t.Errorf("got %d posts, want one of five events", len(got))
	}
}

func TestNothingIsToldWithoutAPolicyOrABackend(t *testing.T) {
	o := Defaults()
	o.File.Path = "/nowhere/audit.log"
	if l, err := New(o); l != nil || err != nil {
		t.Errorf("without a policy: got %v, %v", l, err)
	}
	o = Defaults()
	o.PolicyFile = textFile(t, policyHead+"rules: [{level: Metadata}]")
	if l, err := New(o); l != nil || err != nil {
		t.Errorf("without a backend: got %v, %v", l, err)
	}
	o.Webhook.ConfigFile = "/nowhere"
	if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "--audit-webhook-config-file: initializing audit webhook: ") {
		t.Errorf("a webhook nobody knows: got %v", err)
	}
	o.Webhook.ConfigFile, o.File.Path = "", "/proc/nowhere/audit.log"
	if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "--audit-log-path: ") {
		t.Errorf("a file that cannot be: got %v", err)
	}
}
