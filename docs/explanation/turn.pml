/*
 * The turn protocol as a spin model: two workers, one stop from any gateway, one loss or failover
 * of the buffer and one client, over a store and a buffer that are two systems (no step spans
 * both).
 * Read turn-protocol.md first; scripts/check-protocol runs this file and its faulty variants.
 *
 * A reply is TOKENS tokens long. A token's value is the epoch of the worker that made it, so two
 * workers never make the same text and any mixing of the two shows. Not modelled: time (a lease
 * may run out at any moment, which is the worst case) and liveness (safety only).
 */
#define TOKENS 3
#define EPOCHS 3

#define OPEN 0
#define COMPLETED 1
#define STOPPED 2

/* The store: the turn's row, with the text and the settlement once it is final. */
byte status, epoch, settlements, attempt;
byte stored[TOKENS + 1], stored_length, stored_attempt;

/* The buffer: the reply's log. fence == 0 means that the key is missing. A failover makes the
 * buffer another one: what was written under an earlier origin is in doubt. */
byte fence, log_attempt, log_length, log[TOKENS + 1], log_origin, origin;
#define IN_DOUBT (log_origin != origin)

/* The buffer's replica: what it had when it last heard from the buffer. */
byte copied_fence, copied_attempt, copied_length, copied[TOKENS + 1], copied_origin;

/* What the client has put together. */
byte seen[TOKENS + 1], seen_length, seen_attempt;

/* Step 3: refuse an older epoch, else raise the fence and read, all in one script. */
inline fence_and_read() {
  atomic {
    if
    :: my_epoch < fence -> goto superseded
    :: else ->
       missing = (fence == 0 || IN_DOUBT);
       if
       :: missing && (my_epoch > 1 || fence != 0) ->  /* lost together with its owner */
          if
          :: log_attempt > my_attempt -> my_attempt = log_attempt
          :: else
          fi;
          my_attempt = my_attempt + 1;
          log_attempt = my_attempt;
          log_length = 0
       :: else ->
          if
          :: missing -> log_attempt = my_attempt
          :: else -> my_attempt = log_attempt
          fi
       fi;
       fence = my_epoch;
       log_origin = origin;
       missing = 0;
       mine_length = log_length;
       i = 0;
       do
       :: i < mine_length -> i++; mine[i] = log[i]
       :: else -> break
       od
    fi
  }
}

/* Step 6, the body of the finish transaction. */
inline finish(final_status) {
  status = final_status;
  settlements++;
  stored_attempt = my_attempt;
  stored_length = 0;
  do
  :: stored_length < mine_length -> stored_length++; stored[stored_length] = mine[stored_length]
  :: else -> break
  od
}

/* A worker: claim, fence and read, append token by token, finish; again while there is work. */
proctype Worker() {
  byte my_epoch, mine_length, i, my_attempt;
  bit missing;
  byte mine[TOKENS + 1];
  do
  :: atomic {                                  /* step 2: the claim */
       status == OPEN && epoch < EPOCHS -> epoch++; my_epoch = epoch; my_attempt = attempt
     };
     fence_and_read();
     atomic {
       if
       :: epoch == my_epoch -> attempt = my_attempt
       :: else -> goto superseded
       fi
     };
     do
     :: mine_length < TOKENS ->
        mine[mine_length + 1] = my_epoch;      /* the replica makes the next token */
        atomic {                               /* step 4: the append script */
          if
          :: !IN_DOUBT &&
             fence == my_epoch && log_length == mine_length && log_attempt == my_attempt ->
             mine_length++; log[mine_length] = my_epoch; log_length = mine_length
          :: fence <= my_epoch && (fence == 0 || IN_DOUBT) -> missing = 1
          :: else -> goto superseded
          fi
        };
        if
        :: missing ->                          /* lost while its owner lives: ask the store ... */
           atomic {
             if
             :: epoch == my_epoch
             :: else -> goto superseded
             fi
           };
           atomic {                            /* ... and write all again, in a script of its own */
             missing = 0;
             if
             :: (fence == 0 || IN_DOUBT) && fence <= my_epoch && log_attempt <= my_attempt ->
                fence = my_epoch; log_attempt = my_attempt; log_origin = origin;
                log_length = mine_length;
                i = 0;
                do
                :: i < mine_length -> i++; log[i] = mine[i]
                :: else -> break
                od
             :: else -> goto superseded
             fi
           }
        :: else
        fi
     :: mine_length == TOKENS -> break
     od;
     atomic {                                  /* step 6: the finish transaction */
       if
       :: epoch == my_epoch && status == OPEN -> finish(COMPLETED)
       :: else
       fi
     };
superseded:
     mine_length = 0; my_epoch = 0; i = 0; my_attempt = 0; missing = 0
  :: status != OPEN -> break
  :: epoch >= EPOCHS && status == OPEN -> break
  od
}

/* Step 7: a stop claims whatever the lease, and stores what its fence returned. */
proctype Stop() {
  byte my_epoch, mine_length, i, my_attempt;
  bit missing;
  byte mine[TOKENS + 1];
  if
  :: atomic { status == OPEN -> epoch++; my_epoch = epoch; my_attempt = attempt };
     fence_and_read();
     atomic {
       if
       :: epoch == my_epoch && status == OPEN -> attempt = my_attempt; finish(STOPPED)
       :: else
       fi
     };
superseded:
     skip
  :: skip
  fi
}

/* The buffer may be emptied once, or its replica take its place with what it had, or neither. */
proctype Loss() {
  byte i;
  if
  :: atomic {
       fence != 0 && status == OPEN -> fence = 0; log_length = 0; log_attempt = 0
     }
  :: atomic {                                  /* what the replica hears last */
       status == OPEN ->
       copied_fence = fence; copied_attempt = log_attempt; copied_origin = log_origin;
       copied_length = log_length;
       i = 0;
       do
       :: i < log_length -> i++; copied[i] = log[i]
       :: else -> break
       od
     };
     atomic {
       status == OPEN ->
       fence = copied_fence; log_attempt = copied_attempt; log_origin = copied_origin;
       log_length = copied_length;
       i = 0;
       do
       :: i < copied_length -> i++; log[i] = copied[i]; copied[i] = 0
       :: else -> break
       od;
       copied_fence = 0; copied_attempt = 0; copied_length = 0;
       origin = 1
     }
  :: skip
  fi
}

/* Steps 5 and 8: a client reads only the log, starts again when the attempt changed, and in the
 * end compares what it has with what is stored. */
proctype Client() {
  do
  :: atomic {
       fence != 0 && !IN_DOUBT && log_attempt != seen_attempt ->
       seen_attempt = log_attempt; seen_length = 0
     }
  :: atomic {
       fence != 0 && log_attempt == seen_attempt && seen_length < log_length ->
       seen_length++; seen[seen_length] = log[seen_length]
     }
  :: atomic {
       status != OPEN ->
       if
       :: seen_attempt == stored_attempt ->
          assert(seen_length <= stored_length);
          assert(seen_length < 1 || seen[1] == stored[1]);
          assert(seen_length < 2 || seen[2] == stored[2]);
          assert(seen_length < 3 || seen[3] == stored[3])
       :: else
       fi;
       break
     }
  :: epoch > EPOCHS -> break
  od
}

init {
  atomic {
    attempt = 1;
    seen_attempt = 1;
    run Worker(); run Worker(); run Stop(); run Loss(); run Client()
  }
}

/* Must hold at every moment, not only at the end. */
active proctype NeverSettledTwice() { atomic { settlements > 1 -> assert(false) } }

active proctype FirstTokenIsTheLogs() {
  atomic {
    fence != 0 && log_attempt == seen_attempt && seen_length >= 1 && log_length >= 1 &&
    seen[1] != log[1] -> assert(false)
  }
}

active proctype SecondTokenIsTheLogs() {
  atomic {
    fence != 0 && log_attempt == seen_attempt && seen_length >= 2 && log_length >= 2 &&
    seen[2] != log[2] -> assert(false)
  }
}

active proctype ACompletedReplyIsWhole() {
  atomic { status == COMPLETED && stored_length != TOKENS -> assert(false) }
}
