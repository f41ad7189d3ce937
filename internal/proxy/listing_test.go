package proxy

import (
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// everything is objects that together make every kind of rule there is.
func everything() []any {
	const addresses = "10.96.0.%s fd00:96::%s"
	at := func(n string) string { return strings.ReplaceAll(addresses, "%s", n) }
	both := func(name, v4, v6 string) []any {
		return []any{backends(name, strings.Fields(v4)...), backends(name, strings.Fields(v6)...)}
	}
	balancer := service("balancer", at("30"), nodePort, sticking, func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.ExternalIPs = []string{"198.51.100.5", "fd00:51::5"}
		svc.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", "192.168.1.100/32", "fd00:1::/64"}
		svc.Spec.Ports[0].NodePort, svc.Spec.Ports[1].NodePort = 30081, 30081
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}, {IP: "fd00:203::7"}}
	})
	inside := service("inside", at("40"), func(svc *corev1.Service) {
		svc.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}}
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
		{ContainerPort: 8080, HostPort: 8081, Protocol: corev1.ProtocolTCP},
		{ContainerPort: 8080, HostPort: 8081, Protocol: corev1.ProtocolUDP, HostIP: "127.0.0.1"},
		{ContainerPort: 8080, HostPort: 8081, Protocol: corev1.ProtocolSCTP},
	}}}
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.2"}, {IP: "fd00:244:0:1::2"}}
	objects := []any{
		service("plain", at("10")), service("sticky", at("20"), sticking), balancer, inside,
		service("ports", at("50"), nodePort), service("none", at("60"), nodePort), pod,
	}
	for _, name := range []string{"plain", "sticky", "balancer", "ports"} {
		objects = append(objects, both(name, "10.244.1.2@n1 10.244.1.3@n1 10.244.2.2@n2", "fd00:244:0:1::2@n1 fd00:244:0:1::3@n1 fd00:244:0:2::2@n2")...)
	}
	return append(objects, both("inside", "10.244.2.2@n2", "fd00:244:0:2::2@n2")...)
}

// nft runs the command nft on the host.
func (s *site) nft(args ...string) string {
	s.t.Helper()
	var out []byte
	err := s.n1.Do(func() (err error) {
		out, err = exec.Command("nft", args...).CombinedOutput()
		return err
	})
	if err != nil {
		s.t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestRulesAreReadableWithNft lists the rules with the program that every
// administrator has: it must understand what we wrote, which not all that the
// kernel takes is.
func TestRulesAreReadableWithNft(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("there is no nft on this machine")
	}
	s := newSite(t)
	s.model = NewModel(Config{
		NodeName: "n1", ClusterCIDRs: mustPrefixes("10.244.0.0/16", "fd00:244::/48"), ServiceCIDRs: mustPrefixes("10.96.0.0/12", "fd00:96::/112"),
		NodePortAddresses: mustPrefixes("127.0.0.0/8", "192.168.1.0/24", "fd00:1::/64"),
	})
	s.put(everything()...)
	s.serve()
	s.ask(s.client, "tcp", "10.96.0.20:80", 1) // an entry in the affinity map
	rules := s.nft("list", "ruleset")
	for _, want := range []string{
		"table ip kemudi {", "table ip6 kemudi {",
		`vmap @actions comment "by what @service-ips has for the destination: do"`,
		"10.96.0.10 . tcp . 80 : 0x00000000 . 0x04000003 . 0x00000000 . 0x00000000 . 0x00000000", "0x04000003 : goto pick-3",
		"0x00000000 . udp . fd00:96::10 . 80 . 0x00000002 : fd00:244:0:2::2 . 8080",
		"192.168.1.100 . tcp . 10.96.0.20 . 80 timeout",
		"tcp . 10.96.0.30 . 80 . 10.0.0.0/8", "10.96.0.20 . 80 . tcp . 10.244.1.2 . 8080", "goto sticky-ip-10800", "jump note-ip-3",
		"127.0.0.1 . udp . 8081 : 10.244.1.2 . 8080", "sctp . 8081 : fd00:244:0:1::2 . 8080",
		"masquerade fully-random", "reject with tcp reset",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("nft list ruleset lacks %q", want)
		}
	}
	for _, bad := range []string{"Error", "[invalid type]"} {
		for line := range strings.Lines(rules) {
			if strings.Contains(line, bad) {
				t.Errorf("nft list ruleset says %q: %s", bad, line)
				break
			}
		}
	}
	s.nft("list", "table", "ip", "kemudi")
	s.nft("list", "chain", "ip6", "kemudi", "services")
}
