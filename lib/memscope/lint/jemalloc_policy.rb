# frozen_string_literal: true

require_relative "../reading"
require_relative "../report/quantity"

module Memscope
  class Lint < Reading
    # What suits a process under jemalloc: the options that were given and do well are kept, and the others are changed
    # where the process has a reason for it.
    class JemallocPolicy
      # Where a time is longer than this, pages are kept as if for ever.
      LONG_MS = 60_000
      # For containers and for many processes of a kind (jemalloc's TUNING.md: low resource consumption).
      SHORT_MS = 1000
      # jemalloc's own (DIRTY_DECAY_MS_DEFAULT).
      USUAL_MS = 10_000
      # Fewer than these are no harm.
      FEW_ARENAS = 8
      private_constant :LONG_MS, :SHORT_MS, :USUAL_MS, :FEW_ARENAS

      # @return [Hash{String => Array(String, String)}] value and reason of each option, in the order to give them
      attr_reader :pairs

      # @param settings [Array<Setting>] what holds now
      # @param surroundings [Surroundings]
      # @param meant [Hash{String => String}] the options that the text to replace was to set
      # @param elsewhere [Array<String>] options that other texts give
      def initialize(settings, surroundings, meant, elsewhere)
        @now = settings.to_h { |setting| [setting.name, setting.value] }
        @values = { **@now, **meant.to_h { |name, text| [name, typed(name, text)] } }
        @given = settings.to_h { |setting| [setting.name, setting.problem ? nil : setting.given] }
        @surroundings = surroundings
        @elsewhere = elsewhere
        @meant = meant
        @pairs = meant.to_h { |name, text| [name, [text, @given[name] == text ? "as given" : "as it was meant"]] }
        @problems = []
        judge
      end

      # @param replacement [String] for what a new text repairs
      # @return [Array<Problem>]
      def problems(replacement)
        @problems.map do |id, severity, text, own_replacement|
          Problem.capture({ id: id, severity: severity, text: text, replacement: own_replacement || replacement })
        end
      end

      private

      # As the settings have it.
      def typed(name, text)
        case @now[name]
        when true, false then text == "true"
        when Integer then Integer(text, exception: false) || @now[name]
        else text
        end
      end

      def judge
        judge_arenas
        judge_decay("dirty_decay_ms", wanted_decay, "freed pages stay resident")
        judge_decay("muzzy_decay_ms", 0, "pages given back with MADV_FREE stay in RSS until the kernel wants them")
        judge_background_thread
        judge_huge_pages
        judge_debugging
      end

      def judge_arenas
        narenas = @values["narenas"]
        return if narenas.nil? || ![nil, "disabled"].include?(@values["percpu_arena"])

        excessive = [narenas, @surroundings.threads || narenas].min > [FEW_ARENAS, 4 * @surroundings.parallel].max
        report("narenas", :too_many_arenas, :warning, "#{narenas} arenas for #{threads} on #{processors}") if excessive
        return if (@meant.key?("narenas") && !excessive) || narenas <= @surroundings.arenas

        pair("narenas", @surroundings.arenas,
             "each arena keeps freed pages and part-used slabs of its own; of #{threads} on #{processors} " \
             "#{@surroundings.arenas == 1 ? 'one runs' : 'few allocate'} at the same time")
      end

      def judge_decay(name, wanted, effect)
        now = @values[name]
        return if now.nil?

        kept_long = now.negative? || now > LONG_MS
        report(name, :never_returned, :warning, "#{effect}, #{duration(now)}") if kept_long
        return if kept_long ? false : @meant.key?(name) || now <= wanted

        pair(name, wanted, "#{effect}#{", #{duration(now)} now" unless wanted.zero?}#{container unless wanted.zero?}")
      end

      def duration(milliseconds)
        milliseconds.negative? ? "for ever" : "for #{format('%g', milliseconds / 1000.0)} s"
      end

      def wanted_decay = @surroundings.memory_limit_bytes || @surroundings.forking? ? SHORT_MS : USUAL_MS

      def container
        limit = @surroundings.memory_limit_bytes
        return ", in a container of #{Report::Quantity.size(limit)}" if limit

        ", in each of the forked processes" if @surroundings.forking?
      end

      # A thread does not survive a fork, and jemalloc's manual warns of starting one during its own initialisation
      # (opt.background_thread).
      def judge_background_thread
        return unless @meant["background_thread"] == "true" || given_elsewhere?("background_thread")
        unless @surroundings.forking?
          return explain("background_thread", "Memscope.tune(background_thread: true) turns it on more safely")
        end

        @problems << [:background_thread, :warning,
                      "background_thread: jemalloc's threads are off in every forked child; turn them on in each",
                      "Memscope.tune(background_thread: true)"]
        undo("background_thread", "false", "turned on after the fork, in each process")
      end

      def given_elsewhere?(name) = @elsewhere.include?(name) && @values[name] == true

      def judge_huge_pages
        if @surroundings.thp_enabled? == false
          { "thp" => "default", "metadata_thp" => "disabled" }.each { |name, off| judge_useless(name, off) }
        elsif @surroundings.thp_always? && @values["thp"] != "never"
          return if @values["thp"].nil? || @values["thp"] == "not supported"

          report("thp", :huge_pages, :warning,
                 "#{@values['thp']}: the system makes huge pages even of what jemalloc has given back")
          pair("thp", "never", "huge pages fill in what has been given back: RSS grows though nothing is allocated")
        end
      end

      def judge_useless(name, off)
        value = @values[name]
        return if [nil, off, "never", "not supported"].include?(value)

        report(name, :without_effect, :info, "#{value}: this process has huge pages turned off, as CRuby does it")
        undo(name, off, "this process has huge pages turned off")
      end

      def judge_debugging
        { "junk" => "false", "zero" => false }.each do |name, off|
          value = @values[name]
          next if value.nil? || value == off

          report(name, :debugging, :warning,
                 "#{value}: every block is written to when allocated or freed: for debugging only")
          undo(name, off.to_s, "it is for debugging")
        end
      end

      # Leaving it out is enough where nothing else sets it.
      def undo(name, off, reason)
        given = @meant.key?(name)
        @pairs.delete(name)
        pair(name, off, reason) unless given && !@elsewhere.include?(name)
      end

      def pair(name, value, reason) = @pairs[name] = [value.to_s, reason]

      def explain(name, reason)
        value, given = @pairs[name]
        @pairs[name] = [value, "#{given}; #{reason}"] if value
      end

      # What was meant and has not come about is no harm yet; whoever reports it as that tells the rest.
      def report(name, id, severity, text)
        @problems << [id, severity, "#{name}: #{text}"] if @now[name] == @values[name]
      end

      def threads
        count = @surroundings.threads
        count ? "#{count} thread#{'s' unless count == 1}" : "its threads"
      end

      def processors = @surroundings.processors
    end
    private_constant :JemallocPolicy
  end
end
