/*
 * The verdict on memory over time: if it is growing, since when, in which layer, how fast, with which confidence, and
 * how long until growth can be detected.
 *
 * One regression explains a series by the causes that move memory in a healthy process (warm-up and a day's and a
 * week's load, each with a size that is expected beforehand, and steps), and by unbounded growth, which may have begun
 * at any time. Growth is a leak only if nothing else explains it. While something else may, it is "too early" to tell.
 *
 * A pure function of its arguments: no clock, no Ruby, no malloc, and up to 80 KiB of stack. Needs no GVL.
 */
#pragma once

#include "record_structs.h"

#include "base/status.h"

enum memscope_layer {
    MEMSCOPE_LAYER_OBJECTS,
    MEMSCOPE_LAYER_NATIVE,
    MEMSCOPE_LAYER_FREE,
    MEMSCOPE_LAYER_STACKS,
    MEMSCOPE_LAYER_CODE,
    MEMSCOPE_LAYER_UNSHARED,     /* private memory that was shared after the fork: no part of RSS's growth */
    MEMSCOPE_LAYER_UNATTRIBUTED, /* also memory in RSS and in no other layer */
    MEMSCOPE_LAYER_SHARED,       /* mapped files and objects of shared memory */
    MEMSCOPE_LAYERS,
    MEMSCOPE_LAYER_NONE = MEMSCOPE_LAYERS,
};

enum memscope_verdict_kind {
    MEMSCOPE_VERDICT_TOO_EARLY,
    MEMSCOPE_VERDICT_STEADY,
    MEMSCOPE_VERDICT_FILLING, /* grew while it warmed up or filled a cache, and levels off */
    MEMSCOPE_VERDICT_STEP,    /* grew in one step, and stayed */
    MEMSCOPE_VERDICT_LEAK,
};

/*
 * Floors: the memory left after each major GC, or the minimum of each interval, where intervals have about the same
 * length. The newest 32 values stay as they are. Older values are averaged into points, each of more values the older
 * it is, up to MEMSCOPE_TREND_POINTS points. Values from before the last restart, or before the last 2,500 values, are
 * ignored.
 */
struct memscope_trend {
    size_t count;
    const double *seconds;                 /* strictly growing, of a clock that is never set */
    const double *rss;                     /* bytes */
    const double *layers[MEMSCOPE_LAYERS]; /* bytes, NULL if unknown */
    double limit_bytes;                    /* bytes, 0 if there is none */
    double working_set_bytes;              /* bytes charged to the limit now */
    double horizon_seconds;                /* how far ahead RSS is predicted, 0 for a day */
};

/* In mebibytes. */
struct memscope_trend_noise {
    double white;            /* the standard deviation of the white noise */
    double wandering, hours; /* the standard deviation of the autocorrelated part, and its time constant */
};

/* The memory between judgements, in the same process. Zeroed before the first. */
struct memscope_verdict_memory {
    unsigned positives, negatives; /* judgements in a row that found growth, and that found none */
    bool suspected, leaking;
    double suspected_seconds, positive_seconds; /* the times of the first and the last judgement that found growth */
    enum memscope_layer layer;                  /* that leaks */
    struct memscope_trend_noise noise;          /* of RSS */
};

/* NAN if unknown, or not part of this kind of verdict. shares, confidence and p_value are never NAN. */
struct memscope_verdict {
    enum memscope_verdict_kind kind;
    bool grows; /* this judgement by itself finds unbounded growth, in RSS or in a layer */
    /*
     * The layer that grows most, and each growing layer's share of the growth. Shares sum to 1, or are all 0 if nothing
     * is growing.
     */
    enum memscope_layer layer;
    double shares[MEMSCOPE_LAYERS];
    /*
     * Unless too early, bytes_per_hour: growth apart from all else, and its 95 % interval: of RSS, or of the layer that
     * leaks while RSS does not grow. eta_seconds: of a leak, to the limit, INFINITY for perhaps never. If too early,
     * needs_seconds: the time until the present slope, or a slope that matters, can be detected, and has persisted for
     * long enough, INFINITY for over a month. detectable_bytes_per_hour: minimum detectable growth since the start.
     */
    MEMSCOPE_EMBED(verdict_figures);
    double since_seconds;            /* when that growth began */
    double ends_near_bytes;          /* if filling: RSS at the horizon */
    double step_seconds, step_bytes; /* the largest step up, if it matters: its time, its height */
    double p_value;                  /* of so much growth since that time without a trend (Mann-Kendall) */
};

#define MEMSCOPE_TREND_POINTS 128
/* Growth must have held for this long before it is called a leak, if the limit is not nearer. */
#define MEMSCOPE_PERSISTENCE_HOURS 2.0

/*
 * Judges the series. Growth is called a leak when two judgements in a row find it unbounded, and the first judgement
 * that found it was MEMSCOPE_PERSISTENCE_HOURS ago, or as long ago as the growth would now take to reach the limit.
 * Judgements in between may have missed it, for at most twice MEMSCOPE_PERSISTENCE_HOURS. Until then the kind is too
 * early whenever growth is found, and needs_seconds is the rest of that time. Three judgements in a row that find no
 * growth clear the leak.
 *
 * Growth is not unbounded if its rate in the last quarter of its time is less than half its mean rate, or if its rate
 * in the second half is less than half that in the first. Nor is it unbounded if it is at most twice the largest
 * earlier rise of the same series in as long a time (without steps and the first three hours): one day's load may be
 * twice another's.
 *
 * Returns MEMSCOPE_MALFORMED, and leaves memory and verdict as they are, if a pointer is missing, times do not grow, an
 * amount is negative, or a number is not finite or is over 2^60. Takes 20 to 40 µs for 100 points, 100 µs for 2,000.
 */
enum memscope_status memscope_verdict_judge(const struct memscope_trend *trend, struct memscope_verdict_memory *memory,
                                            struct memscope_verdict *verdict);
