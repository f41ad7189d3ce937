package nginx

import "fmt"

// Conf is a configuration with which nginx keeps all its files in a directory, and has one server: what is said of it, as nginx has
// it, and that it passes all requests on to the backend, over connections that it keeps and with the headers that an edge sends.
func Conf(dir, backend, server string) string {
	return fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log %[1]s/error.log; worker_processes auto; user root;
events { worker_connections 4096; }
http {
  access_log off; client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
  keepalive_requests 10000000;
  upstream web { server %[2]s; keepalive 64; keepalive_requests 10000000; }
  server {
    %[3]s
    location / {
      proxy_pass http://web; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Request-ID $request_id;
    }
  }
}
`, dir, backend, server)
}
