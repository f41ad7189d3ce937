package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/up"
)

// traced has each request be in a trace that its client has begun.
type traced struct{ by http.RoundTripper }

const clientsTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

func (c traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", "00-"+clientsTrace+"-00f067aa0ba902b7-01")
	return c.by.RoundTrip(r)
}

func TestServerSendsTracesWhereItsFileSays(t *testing.T) {
	t.Parallel()
	c, o := collector.New(t), planeOnly(t)
	o.Ephemeral, o.API.TracingFile = true, c.ConfigFile(0) // what the server does by itself would be much
	_, stop := runServer(t, o)
	config, err := clientcmd.BuildConfigFromFlags("", up.AdminKubeconfig(o.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(func(by http.RoundTripper) http.RoundTripper { return traced{by} })
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s := c.The("POST /api/v1/namespaces/{:namespace}/configmaps")
	if s.Trace != clientsTrace || s.Part != "apiserver" || !strings.HasPrefix(s.Process["service.instance.id"], "apiserver-") {
		t.Errorf("got %+v, want it in the client's trace, and of an API server that has a name", s)
	}
	c.Within(s, "Create etcd3")
}

// A collector that is not there holds up neither requests nor the end.
func TestServerServesWithoutItsCollector(t *testing.T) {
	t.Parallel()
	o := planeOnly(t)
	o.Ephemeral, o.API.TracingFile = true, filepath.Join(t.TempDir(), "tracing.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: 127.0.0.1:1\nsamplingRatePerMillion: 1000000\n"
	if err := os.WriteFile(o.API.TracingFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	api, stop := runServer(t, o)
	if _, err := api.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	began := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the end took %s", took)
	}
}

func TestServerRefusesABadTracingFile(t *testing.T) {
	t.Parallel()
	o := planeOnly(t)
	o.API.TracingFile = filepath.Join(t.TempDir(), "tracing.yaml")
	if err := os.WriteFile(o.API.TracingFile, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: -1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--tracing-config-file: ") || !strings.Contains(err.Error(), "samplingRatePerMillion: Invalid value: -1") {
		t.Errorf("got %v, want the flag and the field named", err)
	}
}
