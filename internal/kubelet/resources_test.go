package kubelet

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
)

func TestResourceMetricsAreSummedUpByPod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: a, image: web}, {name: b, image: web}]}`)
		createPod(t, n.api, "one", `{containers: [{name: a, image: web}]}`)
		n.pod("web")
		a := &Agent{o: Options{Runtime: n.cri, Simulated: true}}
		w := httptest.NewRecorder()
		a.serveResources(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics/resource", nil))
		for _, want := range []string{
			`container_cpu_usage_seconds_total{container="b",namespace="default",pod="web"} 1.5 `,
			`container_memory_working_set_bytes{container="a",namespace="default",pod="one"} 4.194304e+06 `,
			`pod_cpu_usage_seconds_total{namespace="default",pod="web"} 3 `,
			`pod_memory_working_set_bytes{namespace="default",pod="web"} 8.388608e+06 `,
			"resource_scrape_error 0\n",
		} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("no %s in\n%s", want, w.Body)
			}
		}
	})
}

func TestNodesUsageIsReadFromProc(t *testing.T) {
	const stat = "cpu  100 20 300 90000 500 6 7 8 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
	const meminfo = "MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:    400 kB\nHugePages_Total:       0\n"
	got, err := parseUsage(stat, meminfo, time.Unix(1, 0))
	if err != nil || got.cpu != 4.41 || got.memory != 600*1024 {
		t.Errorf("got %+v, %v, want 4.41 s and 600 KiB", got, err)
	}
	for what, text := range map[string][2]string{"no cpu": {"", meminfo}, "a word": {"cpu  a 1 1 1 1 1 1 1 1 1\n", meminfo}, "no memory": {stat, ""}} {
		if _, err := parseUsage(text[0], text[1], time.Unix(1, 0)); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	if got, err := nodeUsage(); err != nil || got.cpu <= 0 || got.memory <= 0 {
		t.Errorf("this machine: got %+v, %v", got, err)
	}
}
