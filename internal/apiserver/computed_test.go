package apiserver

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	metricsapi "github.com/kemudi/kemudi/internal/api/metrics"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/resource"
)

// threePods is a source that computes what three pods use, of which each use counts.
type threePods struct{ asked int }

func (s *threePods) make(namespace, name string) *metricsv1beta1.PodMetrics {
	s.asked++
	return &metricsv1beta1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"name": name}},
		Window:     metav1.Duration{Duration: 15 * time.Second},
		Containers: []metricsv1beta1.ContainerMetrics{{Name: "main", Usage: corev1.ResourceList{
			corev1.ResourceCPU: *quantity.NewMilliQuantity(int64(s.asked), quantity.DecimalSI), corev1.ResourceMemory: quantity.MustParse("3Mi"),
		}}},
	}
}

func (s *threePods) One(_ context.Context, namespace, name string) (resource.Object, error) {
	if name == "none" {
		return nil, apierrors.NewNotFound(metricsapi.Pods.GroupResource(), name)
	}
	return s.make(namespace, name), nil
}

func (s *threePods) All(_ context.Context, namespace string, selected labels.Selector) ([]resource.Object, error) {
	var out []resource.Object
	for _, key := range []string{"default/a", "default/b", "other/c"} {
		ns, name, _ := strings.Cut(key, "/")
		if (namespace == "" || namespace == ns) && selected.Matches(labels.Set{"name": name}) {
			out = append(out, s.make(ns, name))
		}
	}
	return out, nil
}

func TestComputedObjectsAreMadeForEachRead(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Sources = map[*resource.Def]read.Source{metricsapi.Pods.Def: &threePods{}} })
	const path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
	for _, want := range []string{`"cpu":"1m"`, `"cpu":"2m"`} {
		got := f.must(http.StatusOK, "GET", path+"/a", "")
		if !strings.HasPrefix(got, `{"kind":"PodMetrics","apiVersion":"metrics.k8s.io/v1beta1","metadata":{"name":"a"`) || !strings.Contains(got, want) {
			t.Errorf("got %s, want it with %s", got, want)
		}
	}
	list := f.must(http.StatusOK, "GET", path, "")
	if !strings.HasPrefix(list, `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[{"metadata":{"name":"a"`) || strings.Contains(list, `"c"`) {
		t.Errorf("list: got %s", list)
	}
	for query, others := range map[string]bool{"labelSelector=name%3Db": false, "fieldSelector=metadata.name%3Db": false, "limit=1": true, "resourceVersion=0": true} {
		if got := f.must(http.StatusOK, "GET", path+"?"+query, ""); !strings.Contains(got, `"name":"b"`) || strings.Contains(got, `"name":"a"`) != others {
			t.Errorf("%s: got %s, want b, and a: %v", query, got, others)
		}
	}
	if got := f.must(http.StatusOK, "GET", "/apis/metrics.k8s.io/v1/pods", ""); !strings.Contains(got, `"apiVersion":"metrics.k8s.io/v1"`) || !strings.Contains(got, `"name":"c","namespace":"other"`) {
		t.Errorf("all namespaces, of v1: got %s", got)
	}
	table := f.must(http.StatusOK, "GET", path, "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	if !strings.Contains(table, `"name":"cpu","type":"string","format":"quantity"`) || !strings.Contains(table, `"3Mi","15s"]`) {
		t.Errorf("table: got %s", table)
	}
}

func TestComputedObjectsAreReadAlone(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Sources = map[*resource.Def]read.Source{metricsapi.Pods.Def: &threePods{}} })
	const path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
	f.must(http.StatusNotFound, "GET", path+"/none", "")
	f.must(http.StatusMethodNotAllowed, "POST", path, `{"kind":"PodMetrics","apiVersion":"metrics.k8s.io/v1beta1","metadata":{"name":"a"}}`)
	f.must(http.StatusMethodNotAllowed, "DELETE", path+"/a", "")
	f.must(http.StatusMethodNotAllowed, "DELETE", path, "")
	f.must(http.StatusMethodNotAllowed, "GET", path+"?watch=true", "")
	got := f.must(http.StatusOK, "GET", "/apis/metrics.k8s.io/v1beta1", "")
	if !strings.Contains(got, `{"name":"pods","singularName":"podmetrics","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}`) {
		t.Errorf("discovery: got %s", got)
	}
	// Nobody computes what nodes use here.
	if got := f.must(http.StatusNotFound, "GET", "/apis/metrics.k8s.io/v1beta1/nodes", ""); !strings.Contains(got, "the server could not find the requested resource") {
		t.Errorf("without a source: got %s", got)
	}
}
