package scheduler

import (
	"log/slog"
	"net/http/httptest"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/obs"
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
