package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

func etcHosts([]string) int {
	data, err := os.ReadFile("/etc/hosts")
	if err != nil {
		fail("%v", err)
	}
	fmt.Print(string(data))
	return 0
}

func dnsSuffix([]string) int {
	fmt.Println(strings.Join(resolvConf("search"), ","))
	return 0
}

func dnsServerList([]string) int {
	fmt.Println(strings.Join(resolvConf("nameserver"), ","))
	return 0
}

// resolvConf returns the words after each line's keyword.
func resolvConf(keyword string) (words []string) {
	f, err := os.Open("/etc/resolv.conf")
	if err != nil {
		fail("%v", err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 1 && fields[0] == keyword {
			words = append(words, fields[1:]...)
		}
	}
	return words
}
