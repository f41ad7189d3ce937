package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotations by which people say how the cluster's own balancer passes connections on.
const (
	// AnnotationBalancerCertificate names a Secret of the Service's namespace, of type kubernetes.io/tls: the balancer
	// ends TLS by it.
	AnnotationBalancerCertificate = "kemudi.io/load-balancer-certificate"
	// AnnotationBalancerTLSPorts has it do so at these ports alone: numbers and names with commas between, or *.
	AnnotationBalancerTLSPorts = "kemudi.io/load-balancer-tls-ports"
	// AnnotationBalancerBackend is what pods speak: tcp, ssl, http or https.
	AnnotationBalancerBackend = "kemudi.io/load-balancer-backend-protocol"
	// AnnotationBalancerBackendSecret names a Secret of the Service's namespace for pods that speak TLS: its ca.crt has the
	// authorities of their certificate, its tls.crt and tls.key, if they are there, what they are shown.
	AnnotationBalancerBackendSecret = "kemudi.io/load-balancer-backend-certificate"
	// AnnotationBalancerBackendName is the name that the certificate of these pods must have; without it they may show any.
	AnnotationBalancerBackendName = "kemudi.io/load-balancer-backend-name"
	// AnnotationBalancerHeader has pods told of the client by the PROXY protocol: v1 or v2.
	AnnotationBalancerHeader = "kemudi.io/load-balancer-proxy-protocol"
	// AnnotationBalancerIdle is for how many seconds a connection may be silent.
	AnnotationBalancerIdle = "kemudi.io/load-balancer-idle-timeout"
	// AnnotationBalancerDraining is for how many seconds connections last to an endpoint that has gone.
	AnnotationBalancerDraining = "kemudi.io/load-balancer-draining-timeout"
	// AnnotationBalancerLog is true if each connection is to be logged.
	AnnotationBalancerLog = "kemudi.io/load-balancer-access-log"
)

// The same in the words of one cloud, which are obeyed where the ones above say nothing.
const (
	awsCertificate     = "service.beta.kubernetes.io/aws-load-balancer-ssl-cert"
	awsTLSPorts        = "service.beta.kubernetes.io/aws-load-balancer-ssl-ports"
	awsBackend         = "service.beta.kubernetes.io/aws-load-balancer-backend-protocol"
	awsHeader          = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol"
	awsIdle            = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout"
	awsDraining        = "service.beta.kubernetes.io/aws-load-balancer-connection-draining-enabled"
	awsDrainingTimeout = "service.beta.kubernetes.io/aws-load-balancer-connection-draining-timeout"
	awsLog             = "service.beta.kubernetes.io/aws-load-balancer-access-log-enabled"
)

// relayPrefixes begin the names of all of these.
var relayPrefixes = []string{"kemudi.io/load-balancer-", "service.beta.kubernetes.io/aws-load-balancer-"}

// defaultDraining is for how long that cloud keeps connections where it is told to and not for how long.
const defaultDraining = 300 * time.Second

// longestRelay is the longest time that may be said.
const longestRelay = 24 * time.Hour

// A Relay is what a Service asks of its balancer that packets which are passed on as they are would not have: the
// connections to its ports end at the edges of nodes.
type Relay struct {
	Certificate string // name of a Secret; empty: no port has TLS
	Header      int    // version of the PROXY protocol; 0: none
	Idle        time.Duration
	Draining    time.Duration // 0: connections to who has gone last as long as they do
	Log         bool
	Ports       []RelayPort
	// How pods are known that speak TLS: by the name of their certificate (empty: they are not), and by what is in a Secret
	// (empty: the machine's authorities, and they are shown nothing).
	BackendName, BackendSecret string
}

// RelayPort is a port of TCP that is relayed.
type RelayPort struct {
	*corev1.ServicePort
	TLS     bool // clients begin with it, and it ends at the balancer
	HTTP    bool // requests are passed on, not bytes
	Encrypt bool // pods speak TLS
}

// BalancerCertificate names the Secret by which the balancer of a Service ends TLS; empty: there is none.
func BalancerCertificate(svc *corev1.Service) string {
	return svc.Annotations[AnnotationBalancerCertificate]
}

// BalancerSecrets are the names of all Secrets by which the balancer of a Service speaks TLS.
func BalancerSecrets(svc *corev1.Service) (names []string) {
	for _, name := range []string{BalancerCertificate(svc), strings.TrimSpace(svc.Annotations[AnnotationBalancerBackendSecret])} {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// RelayOf is what a Service asks to be relayed; nil: nothing. What it asks and cannot be had is an error, and nothing of
// it may be passed on then: clients, or pods, would miss what they were promised.
func RelayOf(svc *corev1.Service) (*Relay, error) {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || !saysHow(svc) {
		return nil, nil
	}
	r := &relayReader{svc: svc, out: &Relay{Certificate: BalancerCertificate(svc)}}
	if _, name := r.which(awsCertificate); name != "" && r.out.Certificate == "" {
		return nil, fmt.Errorf("annotation %s asks for TLS with a certificate that a cloud keeps (%s): have it in a Secret that annotation %s names", awsCertificate, name, AnnotationBalancerCertificate)
	}
	r.header()
	r.out.Idle = r.seconds(AnnotationBalancerIdle, awsIdle)
	r.draining()
	r.log()
	r.ports()
	r.backend()
	if r.err != nil {
		return nil, r.err
	}
	if len(r.out.Ports) == 0 {
		return nil, nil
	}
	return r.out, nil
}

// saysHow says that a Service may have one of the annotations: most have none.
func saysHow(svc *corev1.Service) bool {
	for name := range svc.Annotations {
		if slices.ContainsFunc(relayPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return true
		}
	}
	return false
}

// relayReader reads the annotations. Its first error counts.
type relayReader struct {
	svc *corev1.Service
	out *Relay
	err error
}

func (r *relayReader) bad(name, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("annotation %s: %s", name, fmt.Sprintf(format, args...))
	}
}

// which is the first of the annotations that says something, and what.
func (r *relayReader) which(names ...string) (name, value string) {
	for _, name := range names {
		if value := strings.TrimSpace(r.svc.Annotations[name]); value != "" {
			return name, value
		}
	}
	return "", ""
}

// header reads which version of the PROXY protocol is wanted.
func (r *relayReader) header() {
	name, value := r.which(AnnotationBalancerHeader, awsHeader)
	switch {
	case name == "":
	case name == awsHeader && value == "*", name == AnnotationBalancerHeader && value == "v1":
		r.out.Header = 1
	case name == AnnotationBalancerHeader && value == "v2":
		r.out.Header = 2
	case name == awsHeader:
		r.bad(name, "%q is not *: it is for all ports or none", value)
	default:
		r.bad(name, "%q is neither v1 nor v2", value)
	}
}

// draining reads how long connections last to an endpoint that has gone.
func (r *relayReader) draining() {
	if r.out.Draining = r.seconds(AnnotationBalancerDraining); r.out.Draining > 0 {
		return
	}
	if _, on := r.which(awsDraining); strings.EqualFold(on, "true") {
		if r.out.Draining = r.seconds(awsDrainingTimeout); r.out.Draining == 0 {
			r.out.Draining = defaultDraining
		}
	}
}

// log reads whether each connection is to be logged.
func (r *relayReader) log() {
	name, value := r.which(AnnotationBalancerLog, awsLog)
	if name == "" {
		return
	}
	on, err := strconv.ParseBool(strings.ToLower(value))
	if err != nil {
		r.bad(name, "%q is neither true nor false", value)
	}
	r.out.Log = on
}

// seconds is the time that the first of the annotations says; 0: none does.
func (r *relayReader) seconds(names ...string) time.Duration {
	name, value := r.which(names...)
	if name == "" {
		return 0
	}
	n, err := strconv.Atoi(value)
	if most := int(longestRelay / time.Second); err != nil || n < 1 || n > most {
		r.bad(name, "%q is no number of seconds from 1 to %d", value, most)
		return 0
	}
	return time.Duration(n) * time.Second
}

// ports finds the ports that something is asked for.
func (r *relayReader) ports() {
	o := r.out
	name, backend := r.which(AnnotationBalancerBackend, awsBackend)
	backend = strings.ToLower(backend)
	if backend != "" && !slices.Contains([]string{"tcp", "ssl", "http", "https"}, backend) {
		r.bad(name, "%q is none of tcp, ssl, http and https", backend)
	}
	secure := r.tlsPorts()
	all := o.Header > 0 || o.Idle > 0 || o.Draining > 0 || o.Log
	for i := range r.svc.Spec.Ports {
		p := RelayPort{ServicePort: &r.svc.Spec.Ports[i]}
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			continue
		}
		p.TLS = secure(p.ServicePort)
		p.HTTP = backend == "http" || p.TLS && backend == "https"
		p.Encrypt = p.TLS && (backend == "ssl" || backend == "https")
		if !all && !p.TLS && !p.HTTP {
			continue
		}
		if p.HTTP && o.Header > 0 {
			r.bad(name, "pods that speak %s are told of the client by X-Forwarded-For; the PROXY protocol goes with tcp and ssl", backend)
		}
		if p.NodePort == 0 && r.err == nil {
			r.err = fmt.Errorf("what is asked of the balancer needs a node port for port %d (spec.allocateLoadBalancerNodePorts)", p.Port)
		}
		o.Ports = append(o.Ports, p)
	}
}

// backend reads how pods are known that speak TLS.
func (r *relayReader) backend() {
	name, secret := r.which(AnnotationBalancerBackendSecret)
	if name != "" {
		r.out.BackendSecret = secret
	}
	if named, host := r.which(AnnotationBalancerBackendName); named != "" {
		name, r.out.BackendName = named, host
		if problems := validation.IsDNS1123Subdomain(host); len(problems) > 0 {
			r.bad(named, "%q is no name of a host", host)
		}
	}
	if name != "" && !slices.ContainsFunc(r.out.Ports, func(p RelayPort) bool { return p.Encrypt }) {
		r.bad(name, "there is no port at which pods speak TLS (%s is ssl or https)", AnnotationBalancerBackend)
	}
}

// tlsPorts tells at which ports the balancer ends TLS.
func (r *relayReader) tlsPorts() func(*corev1.ServicePort) bool {
	name, value := r.which(AnnotationBalancerTLSPorts, awsTLSPorts)
	if r.out.Certificate == "" {
		if name != "" {
			r.bad(name, "there is no certificate for these ports (annotation %s)", AnnotationBalancerCertificate)
		}
		return func(*corev1.ServicePort) bool { return false }
	}
	if value == "" || value == "*" {
		return func(*corev1.ServicePort) bool { return true }
	}
	var list []string
	for text := range strings.SplitSeq(value, ",") {
		text = strings.TrimSpace(text)
		is := func(p corev1.ServicePort) bool { return p.Name == text || strconv.Itoa(int(p.Port)) == text }
		if text == "" || !slices.ContainsFunc(r.svc.Spec.Ports, is) {
			r.bad(name, "%q is no port of the Service", text)
		}
		list = append(list, text)
	}
	return func(p *corev1.ServicePort) bool {
		return slices.Contains(list, p.Name) || slices.Contains(list, strconv.Itoa(int(p.Port)))
	}
}
