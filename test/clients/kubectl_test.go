package clients

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// asKubectl, set in the environment, makes this test program be kubectl: some of
// its commands end the process, others need an environment of their own.
const asKubectl = "KEMUDI_TEST_AS_KUBECTL"

func kubectlMain() {
	os.Args[0] = "kubectl"
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err)
	}
	os.Exit(0)
}

// linkKubectl makes the folder bin with a kubectl, and account, for shells.
func linkKubectl(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asKubectl, self)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "bin", "kubectl"), []byte(script), 0o755),
		os.WriteFile(filepath.Join(dir, "bin", "account"), []byte(account), 0o755))
}

// account NAMESPACE NAME prints a kubeconfig for a service account.
const account = `#!/bin/sh
token=$(kubectl -n $1 create token $2)
kubectl config view --raw --minify -o json | sed -e "s|\"client-certificate-data\": \".*\",|\"token\": \"$token\"|" -e '/"client-key-data"/d'
`

// fatal is the panic by which kubectl ends with a message and an exit code.
type fatal struct {
	message string
	code    int
}

// setFatal makes kubectl panic where it would end the process.
var setFatal = sync.OnceFunc(func() {
	cmdutil.BehaviorOnFatal(func(message string, code int) { panic(fatal{message, code}) })
})

// building is held while a kubectl is put together: its libraries keep a few
// things in globals.
var building sync.Mutex

// kubectl runs kubectl in this process.
type kubectl struct {
	kubeconfig string
	cacheDir   string
	stdin      io.Reader
	piped      bool // output is what it printed to standard error alone
	// answer, if set, sees each request first; what it answers with does not come from the server.
	answer func(*http.Request) *http.Response

	output   lockedBuffer // what it printed, both streams unless it is piped
	stdout   bytes.Buffer // what it printed to standard output
	requests []exchange   // what it asked the server, discovery left out
	mu       sync.Mutex   // of requests
}

// exchange is a request and how it was answered.
type exchange struct {
	method, uri, media, body string
	code                     int
}

type lockedBuffer struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.Buffer.String()
}

// run runs one command and returns its exit code.
func (k *kubectl) run(args []string) (code int) {
	setFatal()
	defer func() {
		switch why := recover().(type) {
		case nil:
		case fatal:
			code = why.code
			if why.message != "" {
				fmt.Fprintln(&k.output, strings.TrimSuffix(why.message, "\n"))
			}
		default:
			panic(why)
		}
	}()
	out := io.MultiWriter(&k.output, &k.stdout)
	if k.piped {
		out = &k.stdout
	}
	streams := genericiooptions.IOStreams{In: k.stdin, Out: out, ErrOut: &k.output}
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams)
	*flags.KubeConfig, *flags.CacheDir = k.kubeconfig, k.cacheDir
	// kubectl sets the warnings' way for the whole process; here several run.
	warnings := rest.NewWarningWriter(&k.output, rest.WarningWriterOptions{Deduplicate: true})
	flags.WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.WarningHandler, c.UserAgent = warnings, "kubectl"
		c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return recorder{k, rt} })
		return c
	})
	building.Lock()
	root := cmd.NewKubectlCommand(cmd.KubectlOptions{Arguments: append([]string{"kubectl"}, args...), ConfigFlags: flags, IOStreams: streams})
	building.Unlock()
	root.SetOut(out)
	root.SetErr(&k.output)
	root.SetArgs(args)
	cmdutil.CheckErr(root.Execute())
	return 0
}

// recorder notes the requests that kubectl makes.
type recorder struct {
	k    *kubectl
	next http.RoundTripper
}

func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.k.answer != nil {
		if a := r.k.answer(req); a != nil {
			return a, nil
		}
	}
	e := exchange{method: req.Method, uri: req.URL.RequestURI(), media: req.Header.Get("Content-Type")}
	if req.Body != nil && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		e.body = string(data)
	}
	res, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	e.code = res.StatusCode
	if parts := strings.Split(req.URL.Path, "/"); len(parts) > 4 && (parts[1] == "api" || parts[1] == "apis") || len(parts) == 4 && parts[1] == "api" {
		r.k.mu.Lock()
		defer r.k.mu.Unlock()
		r.k.requests = append(r.k.requests, e)
	}
	return res, nil
}
