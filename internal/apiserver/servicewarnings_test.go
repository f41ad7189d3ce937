package apiserver

import (
	"net/http"
	"slices"
	"testing"
)

func TestWhatIsDeprecatedOrIgnoredOfServicesIsWarnedOf(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		name, annotations, spec string
		want                    []string
	}{
		{"plain", "", `"ports":[{"port":80}]`, nil},
		{"external", "", `"externalIPs":["80.11.12.10"],"ports":[{"port":80}]`, []string{"spec.externalIPs is deprecated and may no longer be implemented in some clusters"}},
		{"longhand", "", `"externalIPs":["2001:db8::0:1"],"ports":[{"port":80}]`, []string{
			`spec.externalIPs[0]: IPv6 address "2001:db8::0:1" should be in RFC 5952 canonical format ("2001:db8::1")`,
			"spec.externalIPs is deprecated and may no longer be implemented in some clusters",
		}},
		{"headless", "", `"clusterIP":"None","externalIPs":["80.11.12.10"],"sessionAffinity":"ClientIP","externalName":"a.example.com","ports":[{"port":80}]`, []string{
			"spec.externalIPs is ignored for headless services", "spec.SessionAffinity is ignored for headless services", `spec.externalName is ignored when spec.type is not "ExternalName"`,
		}},
		{"elsewhere", "", `"type":"ExternalName","externalName":"a.example.com","externalIPs":["80.11.12.10"]`, []string{`spec.externalIPs is ignored when spec.type is "ExternalName"`}},
		{"balanced", "", `"type":"LoadBalancer","loadBalancerIP":"80.11.12.10","loadBalancerSourceRanges":["2001:db8:0::/48"],"ports":[{"port":80}]`, []string{
			`spec.loadBalancerSourceRanges[0]: IPv6 CIDR value "2001:db8:0::/48" should be in RFC 5952 canonical format ("2001:db8::/48")`,
		}},
		{"near", "", `"trafficDistribution":"PreferClose","ports":[{"port":80}]`, []string{`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`}},
		{"near-zone", "", `"trafficDistribution":"PreferSameZone","ports":[{"port":80}]`, nil},
		{"hints", `"annotations":{"service.kubernetes.io/topology-aware-hints":"Auto"},`, `"ports":[{"port":80}]`, []string{
			"annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
		}},
	} {
		w := f.ask("POST", servicesPath, `{"metadata":{`+c.annotations+`"name":"`+c.name+`"},"spec":{`+c.spec+`}}`)
		if got := warningsOf(t, w.Header()); w.Code != http.StatusCreated || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %d, warnings %q, want %q; %s", c.name, w.Code, got, c.want, w.Body)
		}
	}
}

func TestKindsThatAreDeprecatedAreWarnedOfByEachRequest(t *testing.T) {
	f := newFixture(t)
	const endpoints, statuses = "/api/v1/namespaces/default/endpoints", "/api/v1/componentstatuses"
	const replaced, gone = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice", "v1 ComponentStatus is deprecated in v1.19+"
	for _, c := range []struct {
		method, path, body string
		want               []string
	}{
		{"POST", endpoints, `{"metadata":{"name":"e"},"subsets":[{"addresses":[{"ip":"2001:db8::0:1"}],"ports":[{"port":80}]}]}`, []string{
			replaced, `subsets[0].addresses[0].ip: IPv6 address "2001:db8::0:1" should be in RFC 5952 canonical format ("2001:db8::1")`,
		}},
		{"GET", endpoints + "/e", "", []string{replaced}},
		{"GET", endpoints, "", []string{replaced}},
		{"GET", "/api/v1/endpoints?limit=1", "", []string{replaced}},
		{"DELETE", endpoints + "/e", "", []string{replaced}},
		{"GET", statuses, "", []string{gone}}, // which there are not here
		{"GET", servicesPath, "", nil},
	} {
		w := f.ask(c.method, c.path, c.body)
		if got := warningsOf(t, w.Header()); w.Code >= 300 && c.path != statuses || !slices.Equal(got, c.want) {
			t.Errorf("%s %s: got %d, warnings %q, want %q; %s", c.method, c.path, w.Code, got, c.want, w.Body)
		}
	}
}
