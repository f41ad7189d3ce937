package ingress

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

func TestReportsNameWhatIsNotObeyed(t *testing.T) {
	web := parse[networkingv1.Ingress](t, `
metadata:
  namespace: team
  name: web
  annotations: {nginx.ingress.kubernetes.io/server-snippet: "return 200;", nginx.ingress.kubernetes.io/auth-type: basic, nginx.ingress.kubernetes.io/auth-secret: users}
spec: {ingressClassName: nginx, tls: [{secretName: tls}], defaultBackend: {service: {name: gone, port: {number: 80}}}}`)
	fine := parse[networkingv1.Ingress](t, "metadata: {namespace: team, name: fine}\nspec: {ingressClassName: kemudi, defaultBackend: {service: {name: web, port: {number: 80}}}}")
	class := parse[networkingv1.IngressClass](t, "metadata: {name: nginx}\nspec: {controller: k8s.io/ingress-nginx}")
	objects := []resource.Object{web, fine, class}
	const snippet = "annotation nginx.ingress.kubernetes.io/server-snippet is not obeyed here"
	check := func(want ...string) {
		t.Helper()
		got := Report(objects)
		if len(got) != 2 || got[0].Ingress != "team/fine" || !got[0].Obeyed || len(got[0].Problems) > 0 {
			t.Fatalf("got %+v, want team/fine first, of which all is obeyed", got)
		}
		if f := got[1]; f.Ingress != "team/web" || f.Class != "nginx" || f.Obeyed || !slices.Equal(f.Problems, want) {
			t.Errorf("got %+v, want team/web of class nginx, which is not obeyed, with %q", f, want)
		}
	}
	check(snippet) // neither Services nor Secrets were read
	objects = append(objects, parse[corev1.Service](t, "metadata: {namespace: team, name: web}\nspec: {ports: [{port: 80}]}"))
	backend := `service "gone" of spec.defaultBackend does not exist`
	check(snippet, backend)
	objects = append(objects, parse[corev1.Secret](t, "metadata: {namespace: team, name: other}"))
	check(snippet, `annotation nginx.ingress.kubernetes.io/auth-secret is not obeyed: secret "users" does not exist: nobody is let in`, backend, `secret "tls" of spec.tls[0] does not exist`)
}
