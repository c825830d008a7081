package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// tlsConfig returns how to serve TLS, or nil if it is not asked for.
func tlsConfig(cert, key, ca string) (*tls.Config, error) {
	if cert == "" && key == "" {
		if ca != "" {
			return nil, fmt.Errorf("--tls-ca %s needs --tls-cert and --tls-key", ca)
		}
		return nil, nil
	}
	if key == "" {
		return nil, fmt.Errorf("--tls-cert %s needs its --tls-key: --tls-cert and --tls-key go together", cert)
	}
	if cert == "" {
		return nil, fmt.Errorf("--tls-key %s needs its --tls-cert: --tls-cert and --tls-key go together", key)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", cert, key, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if ca == "" {
		return c, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca %s: %w", ca, err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca %s: there is no PEM certificate in it", ca)
	}
	return c, nil
}
