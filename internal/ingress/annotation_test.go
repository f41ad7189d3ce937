package ingress

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

func TestAnnotationsBecomeOptions(t *testing.T) {
	for _, tc := range []struct{ annotations, want, problems string }{
		{"", "null", ""},
		{"ssl-redirect: 'false'\nforce-ssl-redirect: 'true'", `{"plainToo":true,"secure":true}`, ""},
		{"ssl-redirect: 'maybe'", "null", `annotation nginx.ingress.kubernetes.io/ssl-redirect is not obeyed: "maybe" is neither true nor false`},
		{"backend-protocol: grpc", `{"protocol":"grpc"}`, ""},
		{"backend-protocol: FCGI", "null", `annotation nginx.ingress.kubernetes.io/backend-protocol is not obeyed: "FCGI" is none of HTTP, HTTPS, GRPC and GRPCS`},
		{"rewrite-target: /", `{"rewrite":"/"}`, ""},
		{"rewrite-target: /$2\nuse-regex: 'true'", `{"rewrite":"/$2"}`, ""},
		{"app-root: /app", `{"root":"/app"}`, ""},
		{"permanent-redirect: https://b.com\npermanent-redirect-code: '308'", `{"redirect":{"to":"https://b.com","code":308}}`, ""},
		{"permanent-redirect: https://b.com\ntemporal-redirect: https://c.com", `{"redirect":{"to":"https://c.com","code":302}}`, ""},
		{"permanent-redirect: 'javascript:x'", "null", `annotation nginx.ingress.kubernetes.io/permanent-redirect is not obeyed: "javascript:x" is neither an address of HTTP nor a path`},
		{"proxy-body-size: 8m", `{"maxBody":8388608}`, ""},
		{"proxy-body-size: lots", "null", `annotation nginx.ingress.kubernetes.io/proxy-body-size is not obeyed: "lots" is no size`},
		{"proxy-read-timeout: '5'\nproxy-connect-timeout: 3s", `{"connect":3000,"read":5000}`, ""},
		{"whitelist-source-range: '10.0.0.0/8, ::1'", `{"allow":["10.0.0.0/8","::1/128"]}`, ""},
		{"denylist-source-range: 10.1.2.3/8", `{"deny":["10.0.0.0/8"]}`, ""},
		{"whitelist-source-range: '10.0.0.0/8,x'", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/whitelist-source-range is not obeyed: "x" is no address: nobody is let in`},
		{"auth-snippet: x", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-snippet is not obeyed: nobody is asked for that: nobody is let in`},
		{"auth-url: http://auth.example.com/ask", `{"auth":{"url":"http://auth.example.com/ask"}}`, ""},
		{
			"auth-url: http://web.team.svc.cluster.local/ask?from=$host\nauth-method: POST\nauth-response-headers: X-User,X-Group\nauth-signin: https://$host/in?rd=$escaped_request_uri\nauth-signin-redirect-param: to",
			`{"auth":{"url":"http://web.team.svc.cluster.local/ask?from=$host","upstream":"team/web:80","method":"POST","headers":["X-User","X-Group"],"signIn":"https://$host/in?rd=$escaped_request_uri","return":"to"}}`, "",
		},
		{"auth-url: https://web.other.svc/ask", `{"auth":{"url":"https://web.other.svc/ask","upstream":"other/web:443"}}`, `service "web" of namespace "other", which says who may pass, does not exist or has no port 443: nobody is let in`},
		{"auth-url: http://x/$secret", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-url is not obeyed: there is no variable $secret: nobody is let in`},
		{"auth-url: ftp://x", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-url is not obeyed: "ftp://x" is no address of HTTP: nobody is let in`},
		{"auth-signin: https://x\nauth-realm: all", "null", ""},
		{"auth-type: basic\nauth-secret: users\nauth-realm: all", `{"login":{"realm":"all","users":{"ann":"{PLAIN}a"}}}`, `secret "users": the hash of "eve" is of no kind that is read here: that user is not let in`},
		{"auth-type: basic\nauth-secret: team/users\nauth-secret-type: auth-map", `{"login":{"realm":"Authentication Required"}}`, `secret "users": the hash of "auth" is of no kind that is read here: that user is not let in`},
		{"auth-type: basic\nauth-secret: map\nauth-secret-type: auth-map", `{"login":{"realm":"Authentication Required","users":{"bob":"{PLAIN}b"}}}`, ""},
		{"auth-type: basic\nauth-secret: gone", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-secret is not obeyed: secret "gone" does not exist: nobody is let in`},
		{"auth-type: basic\nauth-secret: other/users", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-secret is not obeyed: it names no secret of the Ingress's own namespace: nobody is let in`},
		{"auth-type: basic", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-secret is not obeyed: it names no secret of the Ingress's own namespace: nobody is let in`},
		{"auth-secret: users", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-secret is not obeyed: auth-type does not say what it is for: nobody is let in`},
		{"auth-type: digest\nauth-secret: users", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-type is not obeyed: "digest" is not basic: nobody is let in`},
		{"limit-rps: '10'\nlimit-connections: '3'\nlimit-whitelist: 10.0.0.0/8", `{"limits":{"connections":3,"perSecond":10,"free":["10.0.0.0/8"]}}`, ""},
		{"limit-rpm: '60'\nlimit-burst-multiplier: '2'", `{"limits":{"perMinute":60,"burst":2}}`, ""},
		{"limit-whitelist: 10.0.0.0/8", "null", ""},
		{"upstream-vhost: b.com\nx-forwarded-prefix: /p", `{"host":"b.com","prefix":"/p"}`, ""},
		{"affinity: cookie\nsession-cookie-name: route\nsession-cookie-max-age: '60'", `{"affinity":{"cookie":"route","maxAge":60}}`, ""},
		{"session-cookie-name: route", "null", ""},
		{"canary: 'true'\ncanary-weight: '20'", `{"canary":{"weight":20}}`, ""},
		{"canary-weight: '20'", "null", ""},
		{"canary: 'true'", `{"canary":{}}`, ""},
		{"canary: 'true'\ncanary-by-header: X-C\ncanary-by-header-pattern: '('", `{"canary":{"header":"X-C"}}`, `annotation nginx.ingress.kubernetes.io/canary-by-header-pattern is not obeyed: "(" is no expression that can be used`},
		{"enable-cors: 'true'\ncors-allow-origin: https://a.com\ncors-allow-headers: X-A\ncors-allow-methods: GET", `{"cors":{"origins":["https://a.com"],"methods":"GET","headers":"X-A","credentials":true,"maxAge":1728000}}`, ""},
		{"configuration-snippet: deny all;", "null", "annotation nginx.ingress.kubernetes.io/configuration-snippet is not obeyed here"},
	} {
		text := "metadata: {namespace: team, name: i}\nspec: {}"
		i := parse[networkingv1.Ingress](t, text)
		i.Annotations = map[string]string{}
		for key, value := range *parse[map[string]string](t, tc.annotations) {
			i.Annotations["nginx.ingress.kubernetes.io/"+key] = value
		}
		w := newWorld()
		w.web(t, "web", "")
		w.secrets["team/users"] = &corev1.Secret{Data: map[string][]byte{"auth": []byte("ann:{PLAIN}a\neve:x\n")}}
		w.secrets["team/map"] = &corev1.Secret{Data: map[string][]byte{"bob": []byte("{PLAIN}b\n")}}
		c := Compile(i, w)
		trace.Proves(t, "ING-011")
		if got := show(t, c.Site.Options); got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.annotations, got, tc.want)
		}
		if got := problemsOf(c); got != tc.problems {
			t.Errorf("%q: got problems %q, want %q", tc.annotations, got, tc.problems)
		}
	}
}

// problemsOf are the messages of all problems, a line each.
func problemsOf(c *Compiled) string {
	var out []string
	for _, p := range c.Problems {
		out = append(out, p.Message)
	}
	return strings.Join(out, "\n")
}
