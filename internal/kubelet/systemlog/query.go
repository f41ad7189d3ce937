package systemlog

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of a query, as upstream has them.
const (
	mostServices = 4
	mostLines    = 100_000
	longestName  = 256 // of a service, in bytes
)

// unsafeName is what the name of a service must not have: it becomes an argument of a program.
var unsafeName = regexp.MustCompile(`[^a-zA-Z\-_0-9@]+`)

// query is what somebody wants to see. Services and files are never both there.
type query struct {
	services []string
	files    []string
	options
}

// options narrow what is shown of services that write to the journal.
type options struct {
	since, until time.Time // zero: any
	lines        int       // the last ones; negative: all
	boot         *int      // 0: this one, -1: the one before, and so on; nil: any
	pattern      string    // regular expression; empty: any line
}

// any reports whether there are options.
func (o *options) any() bool {
	return !o.since.IsZero() || !o.until.IsZero() || o.lines >= 0 || o.boot != nil || o.pattern != ""
}

// parse reads a query; asked says whether there is one at all.
func parse(q url.Values) (out query, asked bool, errs field.ErrorList) {
	out.lines = -1
	for _, text := range q["query"] {
		switch {
		case strings.ContainsAny(text, `/\`):
			out.files = append(out.files, text)
		case strings.TrimSpace(text) != "":
			out.services = append(out.services, text)
		}
	}
	if q.Has("query") && len(out.files)+len(out.services) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("query"), q["query"], "query cannot be empty"))
	}
	out.since, errs = parseTime(q, "sinceTime", errs)
	out.until, errs = parseTime(q, "untilTime", errs)
	if text := q.Get("boot"); text != "" {
		boot, err := strconv.Atoi(text)
		if out.boot = &boot; err != nil {
			errs = append(errs, field.Invalid(field.NewPath("boot"), text, err.Error()))
		}
	}
	if text := q.Get("tailLines"); text != "" {
		lines, err := strconv.Atoi(text)
		if err == nil && lines < 0 {
			err = fmt.Errorf("%s", validation.InclusiveRangeError(0, mostLines))
		}
		if out.lines = lines; err != nil {
			errs = append(errs, field.Invalid(field.NewPath("tailLines"), text, err.Error()))
		}
	}
	out.pattern = q.Get("pattern")
	return out, q.Has("query") || out.any(), errs
}

func parseTime(q url.Values, name string, errs field.ErrorList) (time.Time, field.ErrorList) {
	text := q.Get(name)
	if text == "" {
		return time.Time{}, errs
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		errs = append(errs, field.Invalid(field.NewPath(name), text, "invalid time format"))
	}
	return t, errs
}

// check says what is wrong with a query for files of root.
func (q *query) check(root *os.Root) (errs field.ErrorList) {
	for _, name := range q.services {
		if len(name) > longestName {
			errs = append(errs, field.Invalid(field.NewPath("query"), name, fmt.Sprintf("length must be at most %d", longestName)))
		} else if unsafeName.MatchString(name) {
			errs = append(errs, field.Invalid(field.NewPath("query"), name, "input contains unsupported characters"))
		}
	}
	if n := len(q.services); n > mostServices {
		errs = append(errs, field.TooMany(field.NewPath("query"), n, mostServices))
	}
	errs = append(errs, q.checkFiles(root)...)
	if !q.since.IsZero() && !q.until.IsZero() && q.since.After(q.until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), q.until, "must be after `sinceTime`"))
	}
	if q.boot != nil && *q.boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *q.boot, "must be less than 1"))
	}
	if q.lines > mostLines {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), q.lines, validation.InclusiveRangeError(0, mostLines)))
	}
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.pattern, err.Error()))
	}
	return errs
}

func (q *query) checkFiles(root *os.Root) field.ErrorList {
	at := field.NewPath("query")
	switch {
	case len(q.files)+len(q.services) == 0:
		return field.ErrorList{field.Required(at, "cannot be empty with options")}
	case len(q.files) > 0 && len(q.services) > 0:
		return field.ErrorList{field.Invalid(at, fmt.Sprintf("%v, %v", q.files, q.services), "cannot specify a file and service")}
	case len(q.files) > 1:
		return field.ErrorList{field.Invalid(at, q.files, "cannot specify more than one file")}
	case len(q.files) == 1 && q.any():
		return field.ErrorList{field.Invalid(at, q.files, "cannot specify file with options")}
	case len(q.files) == 1:
		if err := regular(root, below(q.files[0])); err != nil && !errors.Is(err, errDirectory) {
			return field.ErrorList{field.Invalid(at, q.files, err.Error())}
		}
	}
	return nil
}

// below is the path of a file from where files are, whatever dots are in its name.
func below(name string) string {
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(name, `\`, "/")), "/"), ".")
}
