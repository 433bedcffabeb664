# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/traced_targets"
require "memscope/remote/attachment"

# Copies of a process, texts that it evaluates, and listeners in it, in the middle of collections, of threads and
# children that begin and end, and of signals: it gives the right results, loses no signal, and keeps nothing.
# `rake battery:attach` is the long form.
class AttachStormsTest < MemscopeTest
  extend TracedTargets

  # Of all targets together.
  TIMES = { copies: Integer(ENV.fetch("MEMSCOPE_COPIES", "6")), texts: Integer(ENV.fetch("MEMSCOPE_TEXTS", "6")),
            listeners: Integer(ENV.fetch("MEMSCOPE_LISTENERS", "0")) }.freeze
  LONG = ENV.key?("MEMSCOPE_COPIES")
  # Of one process, whose descriptors, threads and children are counted at its end.
  AT_ONCE = 250
  # Seconds in which there must be an answer or a reason; and in which a busy process must have loaded memscope.
  PATIENCE = LONG ? 5 : 60
  LOADING = 120
  QUESTIONS = ["6 * 7", "ObjectSpace.count_objects[:TOTAL].positive?"].freeze
  LIBRARY = File.join(ChildProcess::TEST_EXTENSION_DIRECTORY, "memscope_test.so")

  def setup
    skip_under_sanitizer
    @refusals = Hash.new(0)
    @seconds = []
    @pauses = []
  end

  for_each_target "storms", TIMES.reject { |_way, times| times.zero? }.keys do |target, way|
    @target = target
    parts((TIMES[way].to_f / TracedTargets::ALL.size).ceil).each_with_index do |part, index|
      in_storms(way, yjit: index.odd?) { |program| repeat(part, program, way) }
    end
    show if LONG
  end

  private

  def parts(times) = Array.new(times / AT_ONCE, AT_ONCE).push(times % AT_ONCE) - [0]

  # A process that has listened keeps descriptors.
  #
  # @yieldreturn [Integer] how many texts that the program counts it was asked to evaluate
  def in_storms(way, yjit:)
    command = [*@target.command, *("--yjit" if yjit && @target.yjit?)]
    TracedProgram.run("storms", *(LIBRARY if @target.own?), preload: @target.preload, ruby: command) do |program|
      texts = yield program

      assert(program.await { program.status("TracerPid") == "0" })
      wrong, counts = program.finish.split("; ")

      assert_predicate program.ended, :success?
      assert_empty wrong.sub(way == :listeners ? /\A\d+ descriptors, \d+ before 1\z/ : "", ""), counts
      assert_operator count(counts, :signals), :>, 0
      assert_operator count(counts, :children), :>, 0
      assert_equal texts, count(counts, :evaluated), @refusals.inspect
    end
  end

  def count(counts, name) = counts[/\b#{name} (\d+)/, 1].to_i

  # A text that was withdrawn must not run.
  def repeat(times, program, way)
    answered = Array.new(times) { outcome(way == :listeners ? LOADING : PATIENCE) { send(way, program) } }
    way == :texts ? answered.count { |outcome| !outcome.refusal } : 0
  end

  # @return [Tracer::Outcome] an answer or a reason
  def outcome(patience)
    outcome = yield
    @seconds << outcome.seconds
    @refusals[outcome.refusal.first] += 1 if outcome.refusal
    @pauses << (outcome.facts["pause_ns"].to_i / 1e6) if outcome.facts

    refute_nil outcome.facts || outcome.refusal
    assert_operator @seconds.last, :<, patience, outcome.inspect
    outcome
  end

  def copies(program)
    outcome = @target.copy(program, *QUESTIONS)
    return outcome if outcome.refusal

    assert_equal %w[42 true], outcome.answers
    assert_equal "1", outcome.cost&.fetch("reaped"), outcome.inspect
    outcome
  end

  def texts(program) = Tracer.evaluate(program.pid, "$evaluated += 1", deadline_ms: 4500)

  # Has it load memscope and listen, and ends its listener.
  def listeners(program)
    client = Memscope::Client.new(program.pid)
    opened = Tracer.post(program.pid, Memscope::Attached.text(@target.load_path, actions: false))
    return opened if opened.refusal

    assert(program.await { client.check && client.listens? }, "it does not listen")
    assert_equal program.pid, client.call(:process_memory).pid
    closed = Tracer.post(program.pid, Memscope::Attached::CLOSING_TEXT)

    assert(program.await { !client.listens? }, "it still listens") unless closed.refusal
    closed
  end

  def show
    puts "#{name}#{' with YJIT by turns' if @target.yjit?}: #{@seconds.size}, refused #{@refusals}, " \
         "pause p50 #{quantile(@pauses, 0.5)} p99 #{quantile(@pauses, 0.99)} ms, " \
         "answer p50 #{quantile(@seconds, 0.5)} max #{@seconds.max.round(2)} s"
  end

  def quantile(values, share) = values.sort[(values.size * share).floor].to_f.round(2)
end
