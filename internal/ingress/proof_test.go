package ingress

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

func TestClientsAreKnownAsAnnotationsSay(t *testing.T) {
	chain, _ := pairOf(t)
	w := newWorld()
	w.web(t, "web", "")
	w.secrets["team/ca"] = &corev1.Secret{Data: map[string][]byte{"ca.crt": chain}}
	w.secrets["team/bad"] = &corev1.Secret{Data: map[string][]byte{"ca.crt": []byte("x")}}
	w.secrets["team/list"] = &corev1.Secret{Data: map[string][]byte{"ca.crt": chain, "ca.crl": []byte("x")}}
	const (
		prefix = "annotation nginx.ingress.kubernetes.io/"
		shut   = `{"deny":["0.0.0.0/0","::/0"],"proof":{}}`
	)
	for _, tc := range []struct{ annotations, want, problems string }{
		{"auth-tls-secret: team/ca", `{"proof":{"authorities":"CA","depth":1}}`, ""},
		{"auth-tls-secret: ca\nauth-tls-verify-client: 'on'", `{"proof":{"authorities":"CA","depth":1}}`, ""},
		{
			"auth-tls-secret: ca\nauth-tls-verify-client: optional\nauth-tls-verify-depth: '3'\nauth-tls-pass-certificate-to-upstream: 'true'\nauth-tls-error-page: https://a.com/no",
			`{"proof":{"authorities":"CA","depth":3,"mode":"optional","pass":true,"page":"https://a.com/no"}}`, "",
		},
		{"auth-tls-secret: ca\nauth-tls-verify-client: optional_no_ca\nauth-tls-match-cn: CN=ann", `{"proof":{"authorities":"CA","depth":1,"mode":"anyAuthority","subject":"CN=ann"}}`, ""},
		{"auth-tls-secret: ca\nauth-tls-verify-client: 'off'", `{"proof":{"authorities":"CA","depth":1,"mode":"notAsked"}}`, ""},
		{"auth-tls-verify-client: 'on'\nauth-tls-pass-certificate-to-upstream: 'true'", "null", ""},
		{"auth-tls-secret: ca\nauth-tls-verify-client: maybe", `{"proof":{"authorities":"CA","depth":1}}`, prefix + `auth-tls-verify-client is not obeyed: "maybe" is none of on, optional, optional_no_ca and off: it is taken for on`},
		{"auth-tls-secret: ca\nauth-tls-error-page: /no", `{"proof":{"authorities":"CA","depth":1}}`, prefix + `auth-tls-error-page is not obeyed: "/no" is no address of HTTP`},
		{"auth-tls-secret: ca\nauth-tls-match-cn: 'CN=('", shut, prefix + `auth-tls-match-cn is not obeyed: "CN=(" is no expression for a name that begins with CN=: nobody is let in`},
		{"auth-tls-secret: gone", shut, prefix + `auth-tls-secret is not obeyed: secret "gone" does not exist: nobody is let in`},
		{"auth-tls-secret: other/ca", shut, prefix + `auth-tls-secret is not obeyed: it names no secret of the Ingress's own namespace: nobody is let in`},
		{"auth-tls-secret: bad", shut, prefix + `auth-tls-secret is not obeyed: secret "bad": it has no certificate in its key ca.crt: nobody is let in`},
		{"auth-tls-secret: list", shut, prefix + `auth-tls-secret is not obeyed: secret "list": its key ca.crl has what is no list of certificates that were taken back: nobody is let in`},
	} {
		i := parse[networkingv1.Ingress](t, "metadata: {namespace: team, name: i}\nspec: {}")
		i.Annotations = map[string]string{}
		for key, value := range *parse[map[string]string](t, tc.annotations) {
			i.Annotations["nginx.ingress.kubernetes.io/"+key] = value
		}
		c := Compile(i, w)
		if got := strings.ReplaceAll(show(t, c.Site.Options), base64.StdEncoding.EncodeToString(chain), "CA"); got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.annotations, got, tc.want)
		}
		if got := problemsOf(c); got != tc.problems {
			t.Errorf("%q: got problems %q, want %q", tc.annotations, got, tc.problems)
		}
		if strings.Contains(tc.want, "CA") && !slices.Contains(c.Secrets, "team/ca") {
			t.Errorf("%q: its Secrets are %v, want team/ca", tc.annotations, c.Secrets)
		}
		// A report that has read no Secrets has nothing to say of them.
		if said := Report([]resource.Object{i})[0].Problems; strings.Contains(strings.Join(said, "\n"), "ca.crt") {
			t.Errorf("%q: the report says %q", tc.annotations, said)
		}
	}
}
