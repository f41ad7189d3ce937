package podautoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	custom "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	external "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/kemudi/kemudi/internal/api/metrics"
	"github.com/kemudi/kemudi/internal/client"
)

// source asks for metrics, of whoever serves them.
type source struct {
	api     client.Transport
	targets *targets

	mu struct {
		sync.Mutex
		version string // of custom.metrics.k8s.io that is served
		asked   time.Time
	}
}

// rememberVersion is how long the version of custom.metrics.k8s.io is taken to be served.
const rememberVersion = 30 * time.Second

// notServed words an error as clients over a network read it.
func notServed(err error, gr schema.GroupResource) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", gr, "", "", 0, true)
	}
	return err
}

// resources are what the selected pods use of a resource, or one container of each.
func (s *source) resources(ctx context.Context, namespace string, selected labels.Selector, of resourceOf) (map[string]usage, error) {
	var list metricsv1beta1.PodMetricsList // by its path: another server may have it
	err := s.get(ctx, "/apis/metrics.k8s.io/v1beta1/namespaces/"+url.PathEscape(namespace)+"/pods", url.Values{"labelSelector": {selected.String()}}, &list)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", notServed(err, metrics.Pods.GroupResource()))
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	out := make(map[string]usage, len(list.Items))
	for i := range list.Items {
		m := &list.Items[i]
		value, known, err := of.value(m)
		if err != nil {
			return nil, err
		}
		if known {
			out[m.Name] = usage{value, m.Timestamp.Time, m.Window.Duration}
		}
	}
	return out, nil
}

// resourceOf is a resource of whole pods, or of one container of each if that is named.
type resourceOf struct {
	name      corev1.ResourceName
	container string
}

// value is how much a pod uses, in thousandths; known is false if it does not say.
func (r resourceOf) value(m *metricsv1beta1.PodMetrics) (sum int64, known bool, err error) {
	if r.container == "" {
		for i := range m.Containers {
			q, ok := m.Containers[i].Usage[r.name]
			if !ok {
				return 0, false, nil
			}
			sum += q.MilliValue()
		}
		return sum, len(m.Containers) > 0, nil
	}
	i := slices.IndexFunc(m.Containers, func(c metricsv1beta1.ContainerMetrics) bool { return c.Name == r.container })
	if i < 0 {
		return 0, false, fmt.Errorf("failed to get container metrics: container %s not present in metrics for pod %s/%s", r.container, m.Namespace, m.Name)
	}
	q, ok := m.Containers[i].Usage[r.name]
	return q.MilliValue(), ok, nil
}

// errNoCustom is what autoscalers say where nobody serves custom metrics.
var errNoCustom = errors.New("no custom metrics API (custom.metrics.k8s.io) registered")

// customVersion is the version of custom.metrics.k8s.io to ask in.
func (s *source) customVersion(ctx context.Context) (string, error) {
	s.mu.Lock()
	version := s.mu.version
	if time.Since(s.mu.asked) > rememberVersion {
		version = ""
	}
	s.mu.Unlock()
	if version != "" {
		return version, nil
	}
	var group metav1.APIGroup
	err := s.get(ctx, "/apis/custom.metrics.k8s.io", nil, &group)
	switch {
	case apierrors.IsNotFound(err):
		return "", errNoCustom
	case err != nil:
		return "", err
	}
	for _, v := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
		if v.Version == "v1beta2" || v.Version == "v1beta1" {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mu.version, s.mu.asked = v.Version, time.Now()
			return v.Version, nil
		}
	}
	return "", errors.New("no known available metric versions found")
}

// get reads what is served at a path.
func (s *source) get(ctx context.Context, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	obj, err := s.api.Do(ctx, &client.Request{Verb: "get", Path: path})
	if err != nil {
		return err
	}
	raw, ok := obj.(*runtime.Unknown)
	if !ok {
		return fmt.Errorf("get %s: got a %T", path, obj)
	}
	if err := json.Unmarshal(raw.Raw, into); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

// custom asks for a metric of objects: one by its name, or with the name * those selected.
func (s *source) custom(ctx context.Context, namespace, below string, query url.Values) (*custom.MetricValueList, error) {
	version, err := s.customVersion(ctx)
	if err != nil {
		return nil, err
	}
	list := &custom.MetricValueList{}
	path := "/apis/custom.metrics.k8s.io/" + version + "/namespaces/" + url.PathEscape(namespace) + "/" + below
	return list, s.get(ctx, path, query, list)
}

// ofPods are the values of a metric of the selected pods.
func (s *source) ofPods(ctx context.Context, namespace string, selected labels.Selector, m *autoscalingv2.MetricIdentifier) (map[string]usage, error) {
	narrowed, err := metav1.LabelSelectorAsSelector(m.Selector)
	if err != nil {
		return nil, err
	}
	query := url.Values{"labelSelector": {selected.String()}}
	narrow(query, "metricLabelSelector", narrowed)
	list, err := s.custom(ctx, namespace, "pods/*/"+url.PathEscape(m.Name), query)
	if err != nil {
		return nil, fmt.Errorf("unable to get metric %s: unable to fetch metrics from custom metrics API: %w", m.Name, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("unable to get metric %s: no metrics returned from custom metrics API", m.Name)
	}
	out := make(map[string]usage, len(list.Items))
	for i := range list.Items {
		v := &list.Items[i]
		window := time.Minute
		if v.WindowSeconds != nil {
			window = time.Duration(*v.WindowSeconds) * time.Second
		}
		out[v.DescribedObject.Name] = usage{v.Value.MilliValue(), v.Timestamp.Time, window}
	}
	return out, nil
}

func narrow(query url.Values, name string, by labels.Selector) {
	if text := by.String(); text != "" {
		query.Set(name, text)
	}
}

// ofObject is the value of a metric of one object, in thousandths.
func (s *source) ofObject(ctx context.Context, namespace string, m *autoscalingv2.ObjectMetricSource) (int64, error) {
	narrowed, err := metav1.LabelSelectorAsSelector(m.Metric.Selector)
	if err != nil {
		return 0, err
	}
	ref := &m.DescribedObject
	failed := func(err error) error {
		return fmt.Errorf("unable to get metric %s: %s on %s %s: unable to fetch metrics from custom metrics API: %w", m.Metric.Name, ref.Kind, namespace, ref.Name, err)
	}
	below := "metrics/" + url.PathEscape(m.Metric.Name) // of the namespace itself
	if gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind); gvk.GroupKind() != (schema.GroupKind{Kind: "Namespace"}) {
		def, err := s.targets.kind(ref.APIVersion, ref.Kind)
		if err != nil {
			return 0, failed(fmt.Errorf("unable to map kind %s to resource: %w", gvk.GroupKind(), err))
		}
		below = def.String() + "/" + url.PathEscape(ref.Name) + "/" + url.PathEscape(m.Metric.Name)
	}
	query := url.Values{}
	narrow(query, "metricLabelSelector", narrowed)
	list, err := s.custom(ctx, namespace, below, query)
	if err == nil && len(list.Items) != 1 {
		err = fmt.Errorf("the custom metrics API server returned %d results when we asked for exactly one", len(list.Items))
	}
	if err != nil {
		return 0, failed(err)
	}
	return list.Items[0].Value.MilliValue(), nil
}

// fromOutside is the sum of the values of a metric that belongs to no object, in thousandths.
func (s *source) fromOutside(ctx context.Context, namespace string, m *autoscalingv2.MetricIdentifier) (int64, error) {
	narrowed, err := metav1.LabelSelectorAsSelector(m.Selector)
	if err != nil {
		return 0, err
	}
	failed := func(err error) error {
		return fmt.Errorf("unable to get external metric %s/%s/%+v: %w", namespace, m.Name, m.Selector, err)
	}
	query := url.Values{}
	narrow(query, "labelSelector", narrowed)
	var list external.ExternalMetricValueList
	err = s.get(ctx, "/apis/external.metrics.k8s.io/v1beta1/namespaces/"+url.PathEscape(namespace)+"/"+url.PathEscape(m.Name), query, &list)
	if err != nil {
		return 0, failed(fmt.Errorf("unable to fetch metrics from external metrics API: %w", notServed(err, schema.GroupResource{Group: "external.metrics.k8s.io", Resource: m.Name})))
	}
	if len(list.Items) == 0 {
		return 0, failed(errors.New("no metrics returned from external metrics API"))
	}
	var sum int64
	for i := range list.Items {
		sum += list.Items[i].Value.MilliValue()
	}
	return sum, nil
}
