package parts

import (
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/secureport"
)

// show is what /configz answers.
func show(t *testing.T, c secureport.Configuration) string {
	t.Helper()
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/configz", nil))
	var out any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("got %s, %v", w.Body, err)
	}
	return w.Body.String()
}

func wantParts(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("got %s, want in it %s", got, part)
		}
	}
}

func TestConfigurationOfThePartsIsShownInUpstreamsForm(t *testing.T) {
	cm := DefaultControllerManager()
	cm.API.Kubeconfig, cm.ClusterCIDRs = "cm.conf", []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	got := show(t, cm.configuration())
	wantParts(t, got, `{"kubecontrollermanager.config.k8s.io":{`, `"kind":"KubeControllerManagerConfiguration"`, `"DeploymentController":{"ConcurrentDeploymentSyncs":5}`,
		`"ClientConnection":{"kubeconfig":"cm.conf"}`, `"Address":"0.0.0.0"`, `"Port":10257`, `"leaseDuration":"15s"`, `"resourceName":"kube-controller-manager"`, `"ClusterCIDR":"10.244.0.0/16"`)
	for _, s := range controllers.DefaultSyncs() {
		if at, ok := syncFields[s.Flag]; ok {
			wantParts(t, got, `"`+at.field+`":`)
		}
	}

	s := DefaultScheduler()
	s.API.Kubeconfig, s.Election.LeaseDuration = "s.conf", 2*s.Election.LeaseDuration
	c, err := s.config()
	if err != nil {
		t.Fatal(err)
	}
	wantParts(t, show(t, secureport.Configuration{Name: "componentconfig", Value: shown(c, s)}), `{"componentconfig":{"kind":"KubeSchedulerConfiguration","apiVersion":"kubescheduler.config.k8s.io/v1"`,
		`"schedulerName":"default-scheduler"`, `"kubeconfig":"s.conf"`, `"leaseDuration":"30s"`, `"parallelism":16`)

	p := DefaultProxy()
	p.NodeName, p.Primary = "n1", true
	wantParts(t, show(t, p.configuration()), `{"kubeproxy.config.k8s.io":{`, `"kind":"KubeProxyConfiguration"`, `"hostnameOverride":"n1"`, `"metricsBindAddress":"127.0.0.1:10249"`, `"nodePortAddresses":["primary"]`)
}
