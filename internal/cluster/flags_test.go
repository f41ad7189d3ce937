package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/worker"
)

func TestFrontProxyOfTheOperatorsChoiceIsBelieved(t *testing.T) {
	proxies, err := pki.Ensure(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, proxies.FrontProxyCA.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newJoinBed(t, func(o *Options) {
		o.Identity.FrontProxy = FrontProxy{
			CA: ca, Names: []string{"gate"},
			Headers: authn.FrontProxyHeaders{User: []string{"x-gate-user", "X-Remote-User"}, Group: []string{"X-Gate-Group"}, Extra: []string{"X-Gate-Extra-"}},
		}
	})
	// ask says who one is that shows a certificate of that name and these headers.
	ask := func(name string, headers map[string]string) string {
		pair, err := proxies.FrontProxyCA.Issue(pki.Subject{Name: name, Client: true})
		b.must(err)
		key, err := pair.KeyPEM()
		b.must(err)
		c := rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pair.CertPEM(), KeyData: key}}
		c.WrapTransport = transport.Wrappers(func(rt http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				for k, v := range headers {
					r.Header.Set(k, v)
				}
				return rt.RoundTrip(r)
			})
		})
		review, err := b.client(c).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		u := review.Status.UserInfo
		return strings.Join(slices.Concat([]string{u.Username}, u.Groups, u.Extra["team"]), " ")
	}
	for _, tc := range []struct {
		name    string
		headers map[string]string
		want    string
	}{
		{"gate", map[string]string{"X-Gate-User": "carol", "X-Gate-Group": "dev", "X-Gate-Extra-Team": "a"}, "carol dev system:authenticated a"},
		{"gate", map[string]string{"X-Remote-User": "dave", "X-Remote-Group": "system:masters"}, "dave system:authenticated"},
		{"back-door", map[string]string{"X-Gate-User": "carol"}, "Unauthorized"},
	} {
		if got := ask(tc.name, tc.headers); got != tc.want {
			t.Errorf("%s with %v: got %s, want %s", tc.name, tc.headers, got, tc.want)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// writeKey makes a key in a file.
func writeKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sa.key")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, file
}

func TestKeysAndLivesOfTokensAreTheOperatorsChoice(t *testing.T) {
	_, signing := writeKey(t)
	old, oldFile := writeKey(t)
	stranger, _ := writeKey(t)
	b := newJoinBed(t, func(o *Options) {
		o.Identity = Identity{SigningKey: signing, Keys: []string{oldFile}, MaxLife: time.Hour, Audiences: []string{"api", "https://kubernetes.default.svc.cluster.local"}}
	})
	account, err := client.For(b.s.plane.Admin(), core.ServiceAccounts).Get(t.Context(), "default", "default")
	for apierrors.IsNotFound(err) && t.Context().Err() == nil { // its controller may need a moment
		account, err = client.For(b.s.plane.Admin(), core.ServiceAccounts).Get(t.Context(), "default", "default")
	}
	b.must(err)
	day := int64(24 * 60 * 60)
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}
	own, err := b.s.issuer.Issue(t.Context(), ask, authn.Bound{ServiceAccount: account})
	b.must(err)
	if got := *own.Spec.ExpirationSeconds; got != 60*60 || !slices.Equal(own.Spec.Audiences, []string{"api", "https://kubernetes.default.svc.cluster.local"}) {
		t.Errorf("asked for a day: got a token for %d s and %q, want an hour and both audiences", got, own.Spec.Audiences)
	}
	by := func(key *ecdsa.PrivateKey) string {
		i, err := authn.NewIssuer(authn.IssuerOptions{Key: key})
		b.must(err)
		answer, err := i.Issue(t.Context(), ask, authn.Bound{ServiceAccount: account})
		b.must(err)
		return answer.Status.Token
	}
	servers, err := authn.NewIssuer(authn.IssuerOptions{Key: b.s.pki.ServiceAccounts})
	b.must(err)
	servers1, err := servers.Issue(t.Context(), ask, authn.Bound{ServiceAccount: account})
	b.must(err)
	for name, c := range map[string]struct {
		token string
		good  bool
	}{
		"of the signing key": {own.Status.Token, true}, "of the old key": {by(old), true},
		"of a stranger": {by(stranger), false}, "of the server's own key, which is not listed": {servers1.Status.Token, false},
	} {
		_, err := b.client(rest.Config{BearerToken: c.token}).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if good := err == nil; good != c.good || !good && !apierrors.IsUnauthorized(err) {
			t.Errorf("token %s: got %v, want good: %t", name, err, c.good)
		}
	}
}

func TestAdmissionPluginsAreTurnedOnAndOff(t *testing.T) {
	trace.Proves(t, "IMG-008")
	b := newPortBed(t, func(o *Options) {
		o.API.Plugins = plane.Plugins{Enable: []string{"AlwaysPullImages"}, Disable: []string{"DefaultTolerationSeconds", "ServiceAccount"}}
	})
	made, err := client.For(b.s.plane.Admin(), core.Pods).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x:1", ImagePullPolicy: corev1.PullNever}}},
	})
	b.must(err)
	if got := made.Spec.Containers[0].ImagePullPolicy; got != corev1.PullAlways || len(made.Spec.Tolerations) > 0 || len(made.Spec.Volumes) > 0 {
		t.Errorf("got pull policy %s, tolerations %v, volumes %v; want Always, and neither of the others", got, made.Spec.Tolerations, made.Spec.Volumes)
	}
}

func TestSettingsReachTheirParts(t *testing.T) {
	only := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s := newServer(Options{
		Machine: Machine{NodeName: "n1", NodePorts: worker.NodePorts{Addresses: only, Primary: true, MasqueradeAll: true}},
		API:     API{RequestTimeout: 3 * time.Second, MaxReads: 4, MaxWrites: 5},
	}, addresses{})
	if o := s.o.worker(newStages(t.Context())); !slices.Equal(o.NodePorts.Addresses, only) || !o.NodePorts.Primary || !o.NodePorts.MasqueradeAll || o.NodeName != "n1" {
		t.Errorf("worker: got %+v", o)
	}
	var o apiserver.Options
	s.requests(&o)
	if o.RequestTimeout != 3*time.Second || o.MaxReads != 4 || o.MaxWrites != 5 {
		t.Errorf("API server: got timeout %s, %d reads and %d writes", o.RequestTimeout, o.MaxReads, o.MaxWrites)
	}
}

func TestFlagsOfElectionsGoBeforeTheSchedulersFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {leaseDuration: 40s, renewDeadline: 30s, resourceName: mine}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Scheduling{ConfigFile: file}
	for _, c := range []struct {
		flags leader.Settings
		want  string
	}{
		{leader.Settings{}, "kube-system/mine 40s 30s 2s"},
		{leader.Defaults(), "kube-system/mine 40s 30s 2s"},
		{leader.Settings{RenewDeadline: 20 * time.Second, Namespace: "elsewhere"}, "elsewhere/mine 40s 20s 2s"},
		{leader.Settings{Names: []string{"a", "b"}}, "kube-system/b 40s 30s 2s"},
		{leader.Settings{Names: []string{"both"}, RetryPeriod: time.Second}, "kube-system/both 40s 30s 1s"},
		{leader.Settings{LeaseDuration: 20 * time.Second}, "leader election of the scheduler, by flags and by --scheduler-config: --leader-elect-lease-duration 20s must be greater than --leader-elect-renew-deadline 30s"},
		{leader.Settings{Off: true, LeaseDuration: 20 * time.Second}, "off"},
	} {
		got := "off"
		if o, err := s.config(c.flags); err != nil {
			got = err.Error()
		} else if e := o.LeaderElection; !e.Off {
			got = fmt.Sprint(e.Namespace, "/", e.Lease(0), " ", e.LeaseDuration, " ", e.RenewDeadline, " ", e.RetryPeriod)
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.flags, got, c.want)
		}
	}
}

func TestSettingsThatCannotBeAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--percentage-of-nodes-to-score 101 is not between 0 and 100":  func(o *Options) { o.Scheduling.NodesToScore = 101 },
		"--scheduler-config: open /nowhere: no such file or directory": func(o *Options) { o.Scheduling.ConfigFile = "/nowhere" },
		"--request-timeout must not be negative":                       func(o *Options) { o.API.RequestTimeout = -1 },
		"--admission-control-config-file: read admission configuration: open /nowhere.yaml: no such file or directory": func(o *Options) {
			o.API.PluginConfigFile = "/nowhere.yaml"
		},
		"--enable-admission-plugins and --disable-admission-plugins both have Priority": func(o *Options) {
			o.API.Plugins = plane.Plugins{Enable: []string{"Priority"}, Disable: []string{"Priority"}}
		},
		"--service-account-max-token-expiration must be between 1 hour and 2^32 seconds": func(o *Options) { o.Identity.MaxLife = time.Minute },
		"the flags --requestheader-... need --requestheader-client-ca-file: nobody else is believed": func(o *Options) {
			o.Identity.FrontProxy.Names = []string{"gate"}
		},
		"--etcd-certfile, --etcd-keyfile and --etcd-cafile are for connections to --etcd-servers, which is missing": func(o *Options) { o.Etcd.CAFile = "/ca.crt" },
		"--etcd-certfile and --etcd-keyfile go together": func(o *Options) {
			o.Etcd = Etcd{Servers: []string{"https://127.0.0.1:2379"}, CertFile: "/a.crt"}
		},
		"--runtime-handlers are of the built-in container runtime: one of --container-runtime-endpoint has its own": func(o *Options) {
			o.Runtime = worker.Runtime{Endpoint: "/run/x.sock", Handlers: container.Handlers{"crun": {}}}
		},
	} {
		o := Options{Machine: Machine{NodeIP: netip.MustParseAddr("192.0.2.7")}}
		change(&o)
		if _, err := o.withDefaults(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFilesOfKeysThatAreNoneAreRefused(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{none, empty} {
		for flag, i := range map[string]Identity{
			"--service-account-signing-key-file": {SigningKey: file}, "--service-account-key-file": {Keys: []string{file}},
			"--requestheader-client-ca-file": {FrontProxy: FrontProxy{CA: file}},
			"--authentication-config":        {ConfigFile: file}, "--authentication-token-webhook-config-file": {Webhook: authn.WebhookOptions{ConfigFile: file}},
		} {
			o, err := Options{Machine: Machine{DataDir: t.TempDir(), NodeIP: netip.MustParseAddr("192.0.2.7")}, Identity: i}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(o, addresses{})
			if err := s.keys(t.Context()); err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s %s: got %v, want an error that names both", flag, file, err)
			}
		}
	}
}
