package check

import (
	"fmt"
	"net/url"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/resource"
)

// WebhookURL accepts where a webhook is called.
func WebhookURL(errs *resource.Errors, at, address string) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(address)
	if err != nil {
		errs.Required(at, "url must be a valid URL: "+err.Error()+form)
		return
	}
	if u.Scheme != "https" {
		errs.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form)
	}
	if u.Host == "" {
		errs.Invalid(at, u.Host, "host must be specified"+form)
	}
	if u.User != nil {
		errs.Invalid(at, u.User.String(), "user information is not permitted in the URL")
	}
	if u.Fragment != "" {
		errs.Invalid(at, u.Fragment, "fragments are not permitted in the URL")
	}
	if u.RawQuery != "" {
		errs.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL")
	}
}

// WebhookService is a service that a webhook is reached at.
type WebhookService struct {
	Namespace, Name string
	Path            *string
	Port            int32
}

// Check accepts the service that a webhook is reached at.
func (s WebhookService) Check(errs *resource.Errors) {
	Required(errs, "name", s.Name)
	Required(errs, "namespace", s.Namespace)
	if wrong := utilvalidation.IsValidPortNum(int(s.Port)); wrong != nil {
		errs.Invalid("port", s.Port, "port is not valid: "+strings.Join(wrong, ", "))
	}
	if s.Path != nil {
		webhookPath(errs, *s.Path)
	}
}

func webhookPath(errs *resource.Errors, path string) {
	if path == "" || path == "/" {
		return
	}
	if path == "//" {
		errs.Invalid("path", path, "segment[0] may not be empty")
		return
	}
	if path[0] != '/' {
		errs.Invalid("path", path, "must start with a '/'")
	}
	for i, step := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		if step == "" {
			errs.Invalid("path", path, fmt.Sprintf("segment[%d] may not be empty", i))
			continue
		}
		for _, wrong := range utilvalidation.IsDNS1123Subdomain(step) {
			errs.Invalid("path", path, fmt.Sprintf("segment[%d]: %v", i, wrong))
		}
	}
}
