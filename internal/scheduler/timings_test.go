package scheduler

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// shows checks that metrics are shown with a value other than 0, each by a regular expression of its name and labels.
func shows(t *testing.T, from string, want ...string) {
	t.Helper()
	for _, series := range want {
		if !regexp.MustCompile(`(?m)^` + series + ` [1-9]`).MatchString(from) {
			t.Errorf("no %s in\n%s", series, from)
		}
	}
}

// shown is what the scheduler's metrics are.
func (r *rig) shown() string {
	w := httptest.NewRecorder()
	obs.MetricsHandler(r.reg, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestTellsHowLongThePartsOfAnAttemptTake(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		r.node("n2 cpu=1")
		r.pod("p cpu=1")
		shows(t, r.shown(),
			`scheduler_framework_extension_point_duration_seconds_count{extension_point="PreFilter",profile="default-scheduler",status="Success"}`,
			`scheduler_framework_extension_point_duration_seconds_count{extension_point="Filter",profile="default-scheduler",status="Success"}`,
			`scheduler_framework_extension_point_duration_seconds_count{extension_point="Score",profile="default-scheduler",status="Success"}`,
			`scheduler_framework_extension_point_duration_seconds_count{extension_point="Bind",profile="default-scheduler",status="Success"}`,
			`scheduler_async_api_call_execution_total{call_type="pod_binding",result="success"}`,
			`scheduler_async_api_call_execution_duration_seconds_count{call_type="pod_binding",result="success"}`,
			`scheduler_event_handling_duration_seconds_count{event="NodeAdd"}`,
			`scheduler_queue_incoming_pods_total{event="UnscheduledPodAdd",queue="active"}`,
		)
		r.pod("q cpu=2")
		shows(t, r.shown(),
			`scheduler_framework_extension_point_duration_seconds_count{extension_point="PostFilter",profile="default-scheduler",status="Unschedulable"}`,
			`scheduler_async_api_call_execution_total{call_type="pod_status_patch",result="success"}`,
			`scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"}`,
		)
		r.node("n3 cpu=2") // it waits for its back-off
		time.Sleep(time.Minute)
		synctest.Wait()
		r.where("q", "n3")
		shows(t, r.shown(), `scheduler_queue_incoming_pods_total{event="NodeAdd",queue="(active|backoff)"}`)
	})
}

// TestTellsOfSinglePlugins has so many attempts that some of them are measured by all chances.
func TestTellsOfSinglePlugins(t *testing.T) {
	inCluster(t, func(r *rig) {
		const attempts = 200
		r.node("n1 cpu=900 mem=64Gi")
		r.node("n2 cpu=900 mem=64Gi")
		for i := range attempts {
			r.create(fmt.Sprintf("p%d cpu=1 mem=1Mi", i))
		}
		synctest.Wait()
		from := r.shown()
		shows(t, from,
			`scheduler_plugin_execution_duration_seconds_count{extension_point="PreFilter",plugin="NodeAffinity",status="Skip"}`,
			`scheduler_plugin_execution_duration_seconds_count{extension_point="Filter",plugin="NodeResourcesFit",status="Success"}`,
			`scheduler_plugin_execution_duration_seconds_count{extension_point="Score",plugin="NodeResourcesFit",status="Success"}`,
			`scheduler_plugin_evaluation_total{extension_point="PreFilter",plugin="NodeAffinity",profile="default-scheduler"}`,
			`scheduler_plugin_evaluation_total{extension_point="Filter",plugin="NodeResourcesFit",profile="default-scheduler"}`,
		)
		// Most attempts are not measured.
		count := regexp.MustCompile(`scheduler_plugin_execution_duration_seconds_count{extension_point="PreFilter",plugin="NodeAffinity",status="Skip"} (\d+)`)
		if got, err := strconv.Atoi(count.FindStringSubmatch(from)[1]); err != nil || got > attempts/2 {
			t.Errorf("got %d of %d attempts measured, %v, want a tenth of them", got, attempts, err)
		}
	})
}

// gate is a plugin that refuses all nodes until it is opened, which it does not say.
type gate struct {
	no     *plugins.Reason
	opened atomic.Bool
}

func (*gate) Name() string { return "gate" }

func (g *gate) Filter(*plugins.Cycle, *snapshot.Node) *plugins.Reason {
	if g.opened.Load() {
		return nil
	}
	return g.no
}

func TestTellsOfPodsThatNothingHasWoken(t *testing.T) {
	g := &gate{no: &plugins.Reason{Texts: []string{"closed"}, Plugin: len(plugins.New().All)}}
	inClusterWith(t, []plugins.Plugin{g}, func(r *rig) {
		r.node("n1 cpu=1")
		r.pod("p cpu=1")
		r.where("p", "")
		g.opened.Store(true)
		time.Sleep(leftoverAfter + time.Minute)
		synctest.Wait()
		r.where("p", "n1")
		shows(t, r.shown(), "scheduler_pod_scheduled_after_flush_total")
	})
}

func TestShowsWhatPodsAskForAndMayUse(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=4 mem=8Gi res:example.com/foo=5")
		r.pod("p cpu=500m mem=1Gi prio=7 res:example.com/foo=2")
		r.pod("q cpu=9")
		w := httptest.NewRecorder()
		pods := func() *cache.Cache { return r.admin.Cache(core.Pods.Def, "") }
		Resources(pods, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", ResourcesPath, nil))
		for _, series := range []string{
			`kube_pod_resource_request{namespace="default",node="n1",pod="p",priority="7",resource="cpu",scheduler="default-scheduler",unit="cores"} 0.5`,
			`kube_pod_resource_request{namespace="default",node="n1",pod="p",priority="7",resource="memory",scheduler="default-scheduler",unit="bytes"} 1.073741824e\+09`,
			`kube_pod_resource_request{namespace="default",node="n1",pod="p",priority="7",resource="example.com/foo",scheduler="default-scheduler",unit=""} 2`,
			`kube_pod_resource_limit{namespace="default",node="n1",pod="p",priority="7",resource="example.com/foo",scheduler="default-scheduler",unit=""} 2`,
			`kube_pod_resource_request{namespace="default",node="",pod="q",priority="",resource="cpu",scheduler="default-scheduler",unit="cores"} 9`,
		} {
			if !regexp.MustCompile(`(?m)^` + series + `$`).MatchString(w.Body.String()) {
				t.Errorf("no %s in\n%s", series, w.Body)
			}
		}
	})
}
