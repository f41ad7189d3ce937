package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const dialTimeout = 5 * time.Second

// dial makes calls itself and reports what came back.
func dial(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	tries := 1
	if text := q.Get("tries"); text != "" {
		var err error
		if tries, err = strconv.Atoi(text); err != nil {
			http.Error(w, fmt.Sprintf("tries parameter is invalid. %v", err), http.StatusBadRequest)
			return
		}
	}
	request, addr := q.Get("request"), net.JoinHostPort(q.Get("host"), q.Get("port"))
	if request == "" {
		http.Error(w, "request parameter not specified.", http.StatusBadRequest)
		return
	}
	var call func(addr, request string) (string, error)
	var err error
	switch protocol := strings.ToLower(q.Get("protocol")); protocol {
	case "", "http":
		call = dialHTTP
		_, err = net.ResolveTCPAddr("tcp", addr)
	case "udp":
		call = dialUDP
		_, err = net.ResolveUDPAddr("udp", addr)
	default:
		http.Error(w, fmt.Sprintf("unsupported protocol. %s", protocol), http.StatusBadRequest)
		return
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("host and/or port param are invalid. %v", err), http.StatusBadRequest)
		return
	}
	answer := map[string][]string{}
	for range tries {
		var text string
		if text, err = call(addr, request); err != nil {
			answer["errors"] = append(answer["errors"], err.Error())
		} else {
			answer["responses"] = append(answer["responses"], text)
		}
	}
	writeJSON(w, answer, err == nil)
}

func dialHTTP(addr, request string) (string, error) {
	t := &http.Transport{DisableKeepAlives: true}
	c := http.Client{Transport: t, Timeout: dialTimeout}
	res, err := c.Get("http://" + addr + "/" + request)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func dialUDP(addr, request string) (string, error) {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return "", fmt.Errorf("udp dial failed. err:%w", err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		return "", fmt.Errorf("udp connection write failed. err:%w", err)
	}
	c.SetReadDeadline(time.Now().Add(dialTimeout))
	buf := make([]byte, 64<<10)
	n, err := c.Read(buf)
	if err != nil || n == 0 {
		return "", fmt.Errorf("reading from udp connection failed. err:'%v'", err)
	}
	return string(buf[:n]), nil
}
