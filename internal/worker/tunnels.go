package worker

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"strconv"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/dialback"
)

// Tunnels are by what servers reach this machine that cannot connect to it: they lead
// to its node agent and its pods. The worker has been started; who runs them says where
// servers are. ca are the authorities that servers prove themselves by, certificate is
// the node's own.
func (w *Worker) Tunnels(ca *x509.CertPool, certificate func() (*tls.Certificate, error)) (*dialback.Agent, error) {
	return dialback.NewAgent(dialback.AgentOptions{
		NodeName: w.o.NodeName, CA: ca, Certificate: certificate, Logger: w.o.Logger.With("part", "tunnels"),
		Scope: dialback.Scope{
			NodeAgent: net.JoinHostPort(loopback(w.o.Agent.Address).String(), strconv.Itoa(int(w.o.Agent.Port))),
			Pods:      func() []netip.Prefix { return w.share }, Host: w.servesOnMachine,
		},
	})
}

// loopback is where what is served at an address is reached from the machine itself.
func loopback(served netip.Addr) netip.Addr {
	if served.IsValid() && !served.IsUnspecified() {
		return served
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// servesOnMachine reports whether a pod of the machine's own network says that it
// serves at a port.
func (w *Worker) servesOnMachine(at netip.AddrPort) bool {
	for _, pod := range client.Cached(w.c.Transport, core.Pods, "spec.nodeName="+w.o.NodeName).ByIndex("spec.nodeName", w.o.NodeName) {
		if !pod.Spec.HostNetwork {
			continue
		}
		for i := range pod.Spec.Containers {
			for _, port := range pod.Spec.Containers[i].Ports {
				if port.ContainerPort == int32(at.Port()) {
					return true
				}
			}
		}
	}
	return false
}
