package ingress

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
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
		{"auth-url: http://x", `{"deny":["0.0.0.0/0","::/0"]}`, `annotation nginx.ingress.kubernetes.io/auth-url is not obeyed: clients are not asked who they are: nobody is let in`},
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
		c := Compile(i, newWorld())
		if got := show(t, c.Site.Options); got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.annotations, got, tc.want)
		}
		var problems []string
		for _, p := range c.Problems {
			problems = append(problems, p.Message)
		}
		if got := strings.Join(problems, "\n"); got != tc.problems {
			t.Errorf("%q: got problems %q, want %q", tc.annotations, got, tc.problems)
		}
	}
}
