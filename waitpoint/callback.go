package waitpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
)

// Callback serves the links of waitpoints for programs: another service calls the URL of a [Link] when done. A POST
// sends the signal with the body as its payload, whatever its type. The same body posted again is the same signal. Of
// cfg, Callback uses Allow, Failed and MaxBody.
//
// Path and answers are as in [Handler], but without a body: 204 for a signal, 404 for every invalid link, 409 after the
// wait, 413 for a body that is too large. After 503 the service may try again.
func Callback(eng *engine.Engine, signal string, cfg Config) http.Handler {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = engine.MaxSignalPayload
	}
	h := &handler{eng: eng, cfg: cfg}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case cfg.Allow != nil && !cfg.Allow(r):
			w.WriteHeader(http.StatusTooManyRequests)
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			status := h.call(w, r, signal)
			if status == http.StatusNotFound && cfg.Failed != nil {
				cfg.Failed(r)
			}
			w.WriteHeader(status)
		}
	})
}

// call sends the body of a request as the payload of a signal.
func (h *handler) call(w http.ResponseWriter, r *http.Request, signal string) (status int) {
	link, err := h.verify(r)
	if err != nil {
		return statusOf(err)
	}
	link.Payload, err = io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	if err != nil {
		return statusOf(err)
	}
	hash := sha256.Sum256(link.Payload)
	link.Name, link.IdempotencyKey = signal, "callback:"+hex.EncodeToString(hash[:])
	link.SourceType, link.Source = "callback", link.Waitpoint.String()
	_, err = h.eng.SignalWaitpoint(r.Context(), link)
	return statusOf(err)
}

func statusOf(err error) int {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return http.StatusNoContent
	case large:
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, fferr.ErrInvalidToken):
		return http.StatusNotFound
	case errors.Is(err, fferr.ErrNotFound), errors.Is(err, fferr.ErrEnded), errors.Is(err, fferr.ErrWaitpointClosed):
		return http.StatusConflict
	case errors.Is(err, fferr.ErrInvalidInput):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}
