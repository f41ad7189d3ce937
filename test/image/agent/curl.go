package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// curlOptions are the few of curl's that the tests use.
type curlOptions struct {
	method, data, output, format, user   string
	authorities                          string
	headers                              []string
	silent, showError, failing, insecure bool
	follow, head, include, ignored       bool
	connectTimeout, maxTime              float64
	retry                                int
}

// curl imitates the tool of that name, with its exit codes.
func curl(args []string) int {
	var o curlOptions
	urls := flags("curl", args, func(f *pflag.FlagSet) {
		f.StringVarP(&o.method, "request", "X", "", "method")
		f.StringVarP(&o.data, "data", "d", "", "body")
		f.StringVarP(&o.output, "output", "o", "", "file for the answer")
		f.StringVarP(&o.format, "write-out", "w", "", "what to print at the end")
		f.StringVarP(&o.user, "user", "u", "", "name:password")
		f.StringArrayVarP(&o.headers, "header", "H", nil, "extra header")
		f.BoolVarP(&o.silent, "silent", "s", false, "no messages")
		f.BoolVarP(&o.showError, "show-error", "S", false, "messages about errors, with -s")
		f.BoolVarP(&o.failing, "fail", "f", false, "fail on status 400 and above")
		f.BoolVarP(&o.insecure, "insecure", "k", false, "accept any certificate")
		f.StringVar(&o.authorities, "cacert", "", "file with the certificates that are believed")
		f.BoolVarP(&o.follow, "location", "L", false, "follow redirects")
		f.BoolVarP(&o.head, "head", "I", false, "HEAD, and print the headers")
		f.BoolVarP(&o.include, "include", "i", false, "print the headers too")
		f.BoolVarP(&o.ignored, "globoff", "g", false, "ignored")
		f.BoolVarP(&o.ignored, "disable", "q", false, "ignored")
		f.BoolVarP(&o.ignored, "verbose", "v", false, "ignored")
		f.Float64Var(&o.connectTimeout, "connect-timeout", 0, "seconds to connect")
		f.Float64VarP(&o.maxTime, "max-time", "m", 0, "seconds in all")
		f.IntVar(&o.retry, "retry", 0, "times to try again")
	})
	code := 2
	for _, url := range urls {
		for try := 0; ; try++ {
			var err error
			if code, err = o.get(url); err == nil {
				break
			}
			if !o.silent || o.showError {
				fmt.Fprintf(os.Stderr, "curl: (%d) %v\n", code, err)
			}
			if try >= o.retry {
				break
			}
			time.Sleep(time.Second)
		}
	}
	return code
}

// get fetches one URL and returns curl's exit code.
func (o *curlOptions) get(url string) (code int, err error) {
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	method := o.method
	switch {
	case method == "" && o.head:
		method = http.MethodHead
	case method == "" && o.data != "":
		method = http.MethodPost
	case method == "":
		method = http.MethodGet
	}
	ctx := context.Background()
	if o.maxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, seconds(o.maxTime))
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(o.data))
	if err != nil {
		return 3, err
	}
	o.setHeaders(req)
	res, err := o.client().Do(req)
	if err != nil {
		return curlCode(err), err
	}
	defer res.Body.Close()
	return o.print(res)
}

func (o *curlOptions) setHeaders(req *http.Request) {
	req.Header.Set("User-Agent", "curl/8")
	req.Header.Set("Accept", "*/*")
	if o.data != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range o.headers {
		k, v, _ := strings.Cut(h, ":")
		if v = strings.TrimSpace(v); strings.EqualFold(k, "Host") {
			req.Host = v
		} else {
			req.Header.Set(k, v)
		}
	}
	if name, password, ok := strings.Cut(o.user, ":"); ok {
		req.SetBasicAuth(name, password)
	}
}

// believed are the authorities of a file; nil: those of the system.
func (o *curlOptions) believed() *x509.CertPool {
	if o.authorities == "" {
		return nil
	}
	pool := x509.NewCertPool()
	data, err := os.ReadFile(o.authorities)
	if err != nil || !pool.AppendCertsFromPEM(data) {
		fail("--cacert %s: no certificates: %v", o.authorities, err)
	}
	return pool
}

func (o *curlOptions) client() *http.Client {
	c := &http.Client{Transport: &http.Transport{
		DialContext:       (&net.Dialer{Timeout: seconds(o.connectTimeout)}).DialContext,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: o.insecure, RootCAs: o.believed()},
		DisableKeepAlives: true,
	}}
	if !o.follow {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return c
}

func (o *curlOptions) print(res *http.Response) (int, error) {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return curlCode(err), err
	}
	var out bytes.Buffer
	if o.head || o.include {
		fmt.Fprintf(&out, "%s %s\r\n", res.Proto, res.Status)
		res.Header.Write(&out)
		out.WriteString("\r\n")
	}
	failed := o.failing && res.StatusCode >= 400
	if !failed {
		out.Write(body)
	}
	if o.output != "" {
		err = os.WriteFile(o.output, out.Bytes(), 0o644)
	} else {
		_, err = os.Stdout.Write(out.Bytes())
	}
	if err != nil {
		return 23, err
	}
	format := strings.NewReplacer("%{http_code}", strconv.Itoa(res.StatusCode), "%{response_code}", strconv.Itoa(res.StatusCode), `\n`, "\n")
	fmt.Print(format.Replace(o.format))
	if failed {
		return 22, fmt.Errorf("The requested URL returned error: %d", res.StatusCode)
	}
	return 0, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func curlCode(err error) int {
	var dns *net.DNSError
	var ne net.Error
	switch {
	case errors.As(err, &dns):
		return 6
	case errors.As(err, &ne) && ne.Timeout():
		return 28
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return 7
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return 52
	default:
		return 56
	}
}
