# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"
require_relative "../support/word_files"

# Reasons are ids in C, and sentences in lib/memscope/value/reasons.words.
class ReasonsTest < MemscopeTest
  Reasons = Memscope.const_get(:Reasons)
  IDS = WordFiles.read(File.join(ChildProcess::ROOT, "lib/memscope/value/reasons.words")).keys
  SOURCES = Dir[File.join(ChildProcess::ROOT, "ext/memscope/**/*.c")].to_h { |path| [File.basename(path), File.read(path)] }
  STATUSES = File.read(File.join(ChildProcess::ROOT, "ext/memscope/engine/base/status.h"))
  # Parentheses with their content, nested to any depth.
  CALL = /(?<call>\((?:[^()"]|"[^"]*"|\g<call>)*\))/
  ARGUMENT = /(?<argument>(?:[^,()"]|"[^"]*"|#{CALL})+)/
  # Functions that return ids.
  RETURNING = { "jemalloc.c" => "reason_for_no_stats", "ruby_heap.c" => "(?:walk_pages|each_page)",
                "event_hooks.c" => "memscope_event_hooks_obstacle", "allocation_trace.c" => "prepare",
                "object_sampler.c" => "prepare" }.freeze

  def test_each_id_that_c_names_has_a_sentence
    assert_operator named.size, :>, 70
    assert_empty named - IDS
  end

  def test_each_sentence_is_of_an_id_that_c_or_ruby_names
    files = Dir[File.join(ChildProcess::ROOT, "lib/memscope/**/*.rb")]
    in_ruby = files.flat_map { |path| File.read(path).scan(/(?<!:):(\w+)/) }.flatten.map(&:to_sym)

    assert_empty IDS - named - in_ruby
  end

  def test_each_sentence_has_as_many_places_as_arguments
    SOURCES.each_value do |source|
      set = calls(source, "memscope_set_reason_of").map { |_hash, _key, *reason| reason }

      [*calls(source, "memscope_reason_of"), *set].each do |id, *arguments|
        assert_equal arguments.size, Reasons::WORDS[id[1..-2]].scan(/%(?:[sd]|\.\df)/).size, id
      end
    end
  end

  def test_a_reason_becomes_a_sentence
    types = [[:objects_of_type, 2, "A\xFF".b], [:objects_of_type, 1, :type_unnamed]]

    assert_equal "refused by the kernel", Reasons.sentence(:denied)
    assert_equal "from a (b: not there)", Reasons.sentence([:from_file, "a", [:unread, "b", :not_found]])
    assert_equal "a lower bound that leaves out objects with slow or broken size functions: 2 of type A\uFFFD, " \
                 "1 of type (unnamed)",
                 Reasons.sentence([:objects_left_out, types])
    assert_equal "too few windows of allocations were sampled so far (1), so the true error may be larger",
                 Reasons.sentence([:windows_few, 1])
    assert_raises(KeyError) { Reasons.sentence(:unheard_of) }
  end

  def test_a_reading_has_sentences
    reading = Memscope::ProcessMemory.capture({ reasons: { pss_bytes: :denied, a: "as it is" }, cost: Bodies.cost })

    assert_equal({ pss_bytes: "refused by the kernel", a: "as it is" }, reading.reasons)
    assert_predicate reading.reasons, :frozen?
  end

  # What a person can do beside Ractors, or should know of the numbers, is part of the reason.
  def test_reasons_say_what_helps
    { ractor_ended_counting: /measure code that creates none/, ractors_unsampled: /start when they have ended/,
      ractor_ended_sampling: /stop the profile, and start one when no other Ractor is alive/,
      ractor_unnoticed: /cannot notice it in time/, cached_chunks_unmarked: /since 2\.34/,
      requires_transient: /get malloc memory only in or after a garbage collection/,
      requires_lost: /total is too small by the same amount/, large_classes_rounded: /for large classes/,
      data_by_slot: /such as Procs/, dump_with_some_names: /indexes or keys/, imports_taken: /stop its profile/ }
      .each { |id, text| assert_match text, Reasons::WORDS[id], id }
  end

  def test_frozen_reasons_are_turned_into_sentences_once
    reasons = { glibc: :glibc_not_serving }.freeze

    assert_same Reasons.sentences(reasons), Reasons.sentences(reasons)
    assert_equal({ glibc: "glibc does not serve malloc" }, Reasons.sentences(reasons.dup))
  end

  private

  def named
    @named ||= [*SOURCES.flat_map { |name, source| places(name, source) }.join.scan(/"(\w+)"/),
                *STATUSES.scan(/\bSTATUS\([A-Z_]+, (\w+)\)/)].flatten.map(&:to_sym).uniq
  end

  # The parts of a file in which each string literal is an id.
  def places(name, source)
    [*%w[memscope_reason memscope_reason_of].flat_map { |function| calls(source, function).map(&:first) },
     *calls(source, "memscope_set_reason_of").map { |_hash, _key, id| id },
     *%w[memscope_set_reason memscope_heap_call_list].flat_map { |function| calls(source, function).map(&:last) },
     *source.scan(/refusal = "\w+"/), *returned(name, source),
     *('"unread"' if source.include?("memscope_unread(")),
     *(source.scan(/"lever_of_\w+"/) if name == "levers.c")]
  end

  def returned(name, source)
    bodies = RETURNING.key?(name) ? source.scan(/^(?:static )?const char \*#{RETURNING[name]}\(.*?^}/m) : []
    bodies.join.scan(/return [^;]*;/).map { |line| line.scan(/"\w+"/).join }
  end

  # The arguments of each call.
  def calls(source, function)
    source.scan(/\b#{function}#{CALL}/).map { |(call)| call[1..-2].scan(ARGUMENT).map { |(argument)| argument.strip } }
  end
end
