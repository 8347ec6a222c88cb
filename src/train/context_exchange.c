#include "train/context_exchange.h"

static motet_status post_send(void *state, int32_t peer, int32_t tag, const void *data, size_t bytes,
                              motet_error *error, void **transfer) {
  mt_transfer *posted = NULL;
  const motet_status status = mt_transport_send(state, peer, MT_TAG_CONTEXT + tag, data, bytes, error, &posted);
  *transfer = posted;
  return status;
}

static motet_status post_recv(void *state, int32_t peer, int32_t tag, void *data, size_t bytes, motet_error *error,
                              void **transfer) {
  mt_transfer *posted = NULL;
  const motet_status status = mt_transport_recv(state, peer, MT_TAG_CONTEXT + tag, data, bytes, error, &posted);
  *transfer = posted;
  return status;
}

static motet_status wait(void *state, void *transfer, motet_error *error) {
  return mt_transport_wait(state, transfer, error);
}

mt_context_exchange mt_context_exchange_over(mt_transport *transport) {
  return (mt_context_exchange){.state = transport, .send = post_send, .recv = post_recv, .wait = wait};
}
