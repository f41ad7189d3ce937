package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "awscloud: want an address to listen at, as 127.0.0.1:4566")
		os.Exit(2)
	}
	c := newCloud()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", c.serve)
	mux.HandleFunc("GET /balancers", c.show(c.showBalancers))
	mux.HandleFunc("GET /groups", c.show(c.showGroups))
	mux.HandleFunc("DELETE /machines/{id}", c.end)
	s := &http.Server{Addr: os.Args[1], Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, "awscloud:", s.ListenAndServe())
	os.Exit(1)
}

// cloud is what there is. Its trees have the names of the cloud's answers.
type cloud struct {
	mu        sync.Mutex
	machines  []*tree
	subnets   []*tree
	routes    []*tree // tables
	groups    []*tree // of packet filters
	balancers []*tree // classic ones
	policies  map[string][]*tree
	networks  []*tree // network balancers
	listeners []*tree
	targets   []*tree // groups of them
	made      int     // so many things have been made; their names have it
}

// action is a call: it gets the request and returns the result.
type action func(in *tree) (*tree, error)

// service is one of the cloud's, told apart by the version of its interface.
type service struct {
	dialect
	result  bool // an answer has its result in an element of its own
	actions map[string]action
}

func asIs(name string) string  { return name }
func lower(name string) string { return strings.ToLower(name[:1]) + name[1:] }

func (c *cloud) services() map[string]service {
	return map[string]service{
		"2016-11-15": {dialect{"item", lower}, false, c.computing()},
		"2012-06-01": {dialect{"member", asIs}, true, c.balancing()},
		"2015-12-01": {dialect{"member", asIs}, true, c.networking()},
	}
}

// refusal is an error of the cloud, with its code.
type refusal struct{ code, message string }

func (e *refusal) Error() string { return e.code + ": " + e.message }

func refuse(code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

func (c *cloud) serve(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	in := parse(r.PostForm)
	name := in.str("Action")
	service := c.services()[in.str("Version")]
	out, err := &tree{}, refuse("InvalidAction", "the stand-in knows no %s of version %s", name, in.str("Version"))
	if act := service.actions[name]; act != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		out, err = act(in)
	}
	w.Header().Set("Content-Type", "text/xml")
	var b strings.Builder
	var refused *refusal
	if errors.As(err, &refused) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		detail := node("Error.Code", refused.code, "Error.Message", refused.message)
		root := "ErrorResponse"
		if !service.result {
			root, detail = "Response", node("Errors.Error.Code", refused.code, "Errors.Error.Message", refused.message)
		}
		b.WriteString("<" + root + ">")
		dialect{"member", asIs}.write(&b, detail)
		b.WriteString("</" + root + ">")
		w.WriteHeader(http.StatusBadRequest)
	} else {
		b.WriteString("<" + name + "Response>")
		if service.result {
			b.WriteString("<" + name + "Result>")
		}
		service.write(&b, out)
		if service.result {
			b.WriteString("</" + name + "Result>")
		}
		b.WriteString("</" + name + "Response>")
	}
	_, _ = w.Write([]byte(b.String())) // who asked has gone
}

func (c *cloud) show(what func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, line := range what() {
			fmt.Fprintln(w, line)
		}
	}
}

func (c *cloud) name(kind string) string {
	c.made++
	return fmt.Sprintf("%s-%d", kind, c.made)
}

// tagged returns the value of a tag of what has them.
func tagged(t *tree, key string) string {
	for _, list := range []string{"TagSet", "Tags"} {
		for _, tag := range t.get(list).items() {
			if tag.str("Key") == key {
				return tag.str("Value")
			}
		}
	}
	return ""
}

// with returns those whose field is one of the values; all if there are none.
func with(all []*tree, field string, values []string) (out []*tree) {
	for _, t := range all {
		if len(values) == 0 || slices.Contains(values, t.str(field)) {
			out = append(out, t)
		}
	}
	return out
}
