package core

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

// asks is a Service with three ports of TCP and one of UDP, and annotations "name=value" each; those without a slash are
// of the cloud of the documents.
func asks(annotations ...string) *corev1.Service {
	s := &corev1.Service{}
	s.Namespace, s.Name, s.Annotations = "team", "web", map[string]string{}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	for i, name := range []string{"http", "https", "admin"} {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Port: []int32{80, 443, 8443}[i], NodePort: 30000 + int32(i), Protocol: corev1.ProtocolTCP})
	}
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "quic", Port: 443, NodePort: 30000, Protocol: corev1.ProtocolUDP})
	for _, text := range annotations {
		name, value, _ := strings.Cut(text, "=")
		if !strings.Contains(name, "/") {
			name = "service.beta.kubernetes.io/aws-load-balancer-" + name
		}
		s.Annotations[name] = value
	}
	return s
}

// shown is a relay as text: what is for all ports, then what is done at each.
func shown(r *Relay) string {
	if r == nil {
		return "packets"
	}
	var all []string
	if r.Header > 0 {
		all = append(all, fmt.Sprint("v", r.Header))
	}
	if r.Idle > 0 {
		all = append(all, "idle "+r.Idle.String())
	}
	if r.Draining > 0 {
		all = append(all, "draining "+r.Draining.String())
	}
	if r.Log {
		all = append(all, "log")
	}
	for _, p := range r.Ports {
		from, to := map[bool]string{true: "http", false: "tcp"}[p.HTTP], map[bool]string{true: "http", false: "tcp"}[p.HTTP]
		if p.TLS {
			from = map[bool]string{true: "https", false: "ssl"}[p.HTTP]
		}
		if p.Encrypt {
			to = map[bool]string{true: "https", false: "ssl"}[p.HTTP]
		}
		all = append(all, fmt.Sprintf("%d %s>%s", p.Port, from, to))
	}
	return strings.Join(all, ", ")
}

const certificate = AnnotationBalancerCertificate + "=pair"

func TestAnnotationsSayHowBalancersPassOn(t *testing.T) {
	for _, tc := range []struct {
		say  []string
		want string
		ids  []string
	}{
		{nil, "packets", nil},
		{[]string{"internal=true", "cross-zone-load-balancing-enabled=true", "access-log-enabled=false"}, "packets", nil},
		{[]string{certificate}, "80 ssl>tcp, 443 ssl>tcp, 8443 ssl>tcp", []string{"SVC-124"}},
		{[]string{certificate, "ssl-cert=arn:aws:acm:us-east-1:123456789012:certificate/1"}, "80 ssl>tcp, 443 ssl>tcp, 8443 ssl>tcp", []string{"SVC-125"}},
		{[]string{certificate, "ssl-ports=443,8443"}, "443 ssl>tcp, 8443 ssl>tcp", []string{"SVC-130"}},
		{[]string{certificate, "ssl-ports=443,8443", "backend-protocol=http"}, "80 http>http, 443 https>http, 8443 https>http", []string{"SVC-126", "SVC-130"}},
		{[]string{certificate, "ssl-ports=https, admin", "backend-protocol=https"}, "443 https>https, 8443 https>https", []string{"SVC-126"}},
		{[]string{certificate, "ssl-ports=*", "backend-protocol=ssl"}, "80 ssl>ssl, 443 ssl>ssl, 8443 ssl>ssl", []string{"SVC-126"}},
		{[]string{certificate, "ssl-ports=443", "backend-protocol=TCP"}, "443 ssl>tcp", []string{"SVC-126"}},
		{[]string{certificate, "ssl-ports=443", AnnotationBalancerTLSPorts + "=80"}, "80 ssl>tcp", nil},
		{[]string{"backend-protocol=http"}, "80 http>http, 443 http>http, 8443 http>http", []string{"SVC-179"}},
		{[]string{"backend-protocol=ssl"}, "packets", nil},
		{[]string{"proxy-protocol=*"}, "v1, 80 tcp>tcp, 443 tcp>tcp, 8443 tcp>tcp", []string{"SVC-132"}},
		{[]string{AnnotationBalancerHeader + "=v2", certificate, "ssl-ports=443"}, "v2, 80 tcp>tcp, 443 ssl>tcp, 8443 tcp>tcp", nil},
		{[]string{"connection-idle-timeout=60"}, "idle 1m0s, 80 tcp>tcp, 443 tcp>tcp, 8443 tcp>tcp", []string{"SVC-139"}},
		{[]string{"connection-draining-enabled=true", "connection-draining-timeout=60"}, "draining 1m0s, 80 tcp>tcp, 443 tcp>tcp, 8443 tcp>tcp", []string{"SVC-138"}},
		{[]string{"connection-draining-enabled=true"}, "draining 5m0s, 80 tcp>tcp, 443 tcp>tcp, 8443 tcp>tcp", []string{"SVC-137"}},
		{[]string{"connection-draining-timeout=60"}, "packets", nil},
		{[]string{"access-log-enabled=true", "access-log-emit-interval=60"}, "log, 80 tcp>tcp, 443 tcp>tcp, 8443 tcp>tcp", []string{"SVC-133"}},
	} {
		r, err := RelayOf(asks(tc.say...))
		if got := shown(r); err != nil || got != tc.want {
			t.Errorf("%q: got %s, %v; want %s", tc.say, got, err, tc.want)
			continue
		}
		if len(tc.ids) > 0 {
			trace.Proves(t, tc.ids...)
		}
	}
	other := asks(certificate)
	other.Spec.Type = corev1.ServiceTypeNodePort
	if r, err := RelayOf(other); r != nil || err != nil {
		t.Errorf("a Service of another type: got %s, %v", shown(r), err)
	}
}

func TestWhatBalancersCannotDoIsSaid(t *testing.T) {
	for _, tc := range []struct{ say, want string }{
		{"ssl-cert=arn:aws:acm:us-east-1:123456789012:certificate/1", "asks for TLS with a certificate that a cloud keeps"},
		{"ssl-ports=443", "there is no certificate for these ports"},
		{certificate + " ssl-ports=443,9", `"9" is no port of the Service`},
		{certificate + " backend-protocol=grpc", `"grpc" is none of tcp, ssl, http and https`},
		{"proxy-protocol=80", `"80" is not *`},
		{AnnotationBalancerHeader + "=v3", `"v3" is neither v1 nor v2`},
		{"proxy-protocol=* backend-protocol=http", "the PROXY protocol goes with tcp and ssl"},
		{"connection-idle-timeout=0", `"0" is no number of seconds from 1 to 86400`},
		{"connection-draining-enabled=true connection-draining-timeout=soon", `"soon" is no number of seconds`},
		{"access-log-enabled=maybe", `"maybe" is neither true nor false`},
	} {
		r, err := RelayOf(asks(strings.Fields(tc.say)...))
		if r != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %s, %v; want an error with %q", tc.say, shown(r), err, tc.want)
		}
	}
	without := asks(certificate)
	without.Spec.Ports[1].NodePort = 0
	if _, err := RelayOf(without); err == nil || !strings.Contains(err.Error(), "needs a node port for port 443") {
		t.Errorf("without a node port: got %v", err)
	}
}
